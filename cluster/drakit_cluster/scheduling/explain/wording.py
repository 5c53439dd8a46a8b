"""Texts for the refusal of one device: the amount needed and left, the expression that is false, and the claims in the way."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from drakit.telemetry import plurals
from drakit_cluster.cel import compared_texts
from drakit_cluster.client import pod_claims
from drakit_cluster.objects import capacity, json_types, naming, quantity, taints
from drakit_cluster.objects.capacity import RequestPolicy
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.quantity import Format, Quantity
from drakit_cluster.scheduling.allocator import suitability
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.pools import PoolId
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Option
from drakit_cluster.scheduling.allocator.suitability import Refusal
from drakit_cluster.scheduling.allocator.world import Pick

Holders = Mapping[DeviceId, Sequence[str]]
"""By device: the claims that have it, each with its pods."""
_FAILING = re.compile(r"selector #(\d+) of the (class \S+|request) fails on device \S+: (.*)", re.DOTALL)


def holders_of(claims: Iterable[Object]) -> dict[DeviceId, list[str]]:
    """Return the claims that have devices, by device. Admin access takes no device."""
    holders: dict[DeviceId, list[str]] = {}
    for claim in claims:
        for result in json_types.objects(pod_claims.allocation(claim), "devices", "results"):
            if result.get("adminAccess") is not True:
                device = DeviceId(*(json_types.text(result, field) for field in ("driver", "pool", "device")))
                holders.setdefault(device, []).append(holder(claim))
    return holders


def holder(claim: Object) -> str:
    """Return a claim with the pods of its namespace that it is reserved for."""
    pods = [json_types.text(entry, "name") for entry in pod_claims.reserving_pods(claim)]
    return f"claim {naming.label(claim)}" + (f" of {plurals.noun(len(pods), 'pod')} {listed(pods)}" if pods else "")


class RefusalTexts:
    """The texts for one problem. ``holders`` are the claims that had devices before."""

    def __init__(self, problem: Problem, holders: Holders) -> None:
        self._problem = problem
        self._holders = holders
        self._unknown: dict[str, str] = {}

    def for_verdict(self, option: Option, device: Device, verdict: Refusal | AllocationError) -> str:
        if isinstance(verdict, AllocationError):
            return _failing_selector(option, device, verdict)
        if verdict is Refusal.COUNTERS:
            short = self.short_counter(device, self._problem.suitability.remaining)
            return verdict.value if short is None else self.counter(device, short, self._problem.suitability.remaining, ())
        if verdict is Refusal.GROUPS:
            common = self._problem.suitability.common_groups
            number = suitability.excluding_set(device.groups, common)
            return verdict.value if number is None else self.groups(device, number, common, ())
        text_of = _BY_REFUSAL.get(verdict)
        return text_of(self, option, device) if text_of is not None else verdict.value

    def in_use(self, _option: Option, device: Device) -> str:
        return _taken_by(self._holders.get(device.id, ())) or Refusal.IN_USE.value

    def class_selector(self, option: Option, device: Device) -> str:
        return f"not selected by class {option.want.class_name}: {self._false_expression(option.want.class_selectors, device)}"

    def selector(self, option: Option, device: Device) -> str:
        expression = self._false_expression(option.want.selectors, device)
        return f"not selected by the request: {expression}{self._unknown_text(expression)}"

    def taint(self, option: Option, device: Device) -> str:
        untolerated = [taint_ for taint_ in json_types.objects(device.spec, "taints") if taints.prevents([taint_], option.want.tolerations)]
        return f"tainted and not tolerated: {', '.join(map(_taint_text, untolerated))}"

    def _false_expression(self, expressions: Sequence[str], device: Device) -> str:
        return next((expression for expression in expressions if self._problem.inventory.verdicts(expression)[device.index] is False), "")

    def _unknown_text(self, expression: str) -> str:
        """Return in words the first text that an expression that selects nothing compares, and that no device has; "" without one."""
        if expression not in self._unknown:
            inventory, text = self._problem.inventory, ""
            if not any(verdict is True for verdict in inventory.verdicts(expression)):
                for unknown in compared_texts.unknown(expression, (device.view for device in inventory.devices))[:1]:
                    text = f", and no device here has {unknown.attribute} {unknown.text}: {unknown.values}"
            self._unknown[expression] = text
        return self._unknown[expression]

    def short_counter(self, device: Device, left: Sequence[int]) -> int | None:
        """Return the emptiest counter of which the device draws more than is left; None if there is none."""
        short = [position for position, amount in device.draws if left[position] < amount]
        return min(short, key=lambda position: (left[position], position), default=None)

    def counter(self, device: Device, position: int, left: Sequence[int], picks: Sequence[Pick]) -> str:
        """Return the amount of a counter that the device needs, the rest, and the takers: earlier claims and requests of this decision."""
        _, set_name, name = self._problem.inventory.counters[position]
        form = _draw_format(device.spec, set_name, name)
        needed = Quantity(nanos=dict(device.draws)[position], format=form)
        takers = [*self._drawing_claims.get(position, ()), *(f"request {pick.option.name}" for pick in picks)]
        rest = _rest_text(left[position], self._problem.inventory.totals[position], form)
        return f"counter {name} of {set_name}: {needed} needed, {rest}{f', taken by {listed(takers)}' if takers else ''}"

    def takers(self, device: Device, verdict: Refusal) -> Sequence[str]:
        """Return the claims that have a refused device, or what it needs of its board."""
        if verdict is Refusal.COUNTERS:
            short = self.short_counter(device, self._problem.suitability.remaining)
            return () if short is None else self._drawing_claims.get(short, ())
        return self._holders.get(device.id, ()) if verdict in (Refusal.IN_USE, Refusal.CAPACITY) else ()

    @cached_property
    def _drawing_claims(self) -> Mapping[int, list[str]]:
        """The claims that draw from each counter, by its position."""
        pools = {pool.id: pool for pool, _, _ in self._problem.inventory.counters}
        drawing: dict[int, list[str]] = {}
        for device, claims in self._holders.items():
            if (pool := pools.get(PoolId(device.driver, device.pool))) is not None:
                for position, _ in pool.draws_of(device.device):
                    drawing.setdefault(position, []).extend(claims)
        return drawing

    def groups(self, device: Device, number: int, common: Sequence[int], picks: Sequence[Pick]) -> str:
        """Return the compatibility groups of the device in a counter set, those in use there, and their holders."""
        pool, set_name = self._problem.inventory.grouped_sets[number]
        own = self._named_groups(dict(device.groups)[number])
        holders = [
            claim
            for held, claims in self._holders.items()
            if (held.driver, held.pool) == pool.id and any(number == held_set for held_set, _ in pool.groups_in_use({held.device}))
            for claim in claims
        ]
        holders += [f"request {pick.option.name}" for pick in picks]
        by = f" ({listed(holders)})" if holders else ""
        return f"compatibility groups of {set_name}: the device has {own}, the devices in use have {self._named_groups(common[number])}{by}"

    def _named_groups(self, bits: int) -> str:
        names = sorted(name for name, bit in self._problem.inventory.group_bits.items() if bits & bit)
        return ", ".join(names) or ("none" if bits else "none in common")

    def capacity(self, option: Option, device: Device) -> str:
        """Say which capacity is missing, against its policy, or used up."""
        requested = device.requested(option.want.amounts)
        if missing := sorted(name for name in requested if name not in device.capacities):
            return f"has no capacity {', '.join(missing)}"
        taken = capacity.consume_all(requested, device.capacities)
        if negative := [f"capacity {name}: {amount} is negative" for name, amount in taken.items() if amount.nanos < 0]:
            return "; ".join(negative)
        violations = [
            f"capacity {name}: {requested.get(name, 'the default')} is against its policy, {_policy_text(published.policy)}"
            for name, published in device.capacities.items()
            if published.policy is not None
            and capacity.demand({key: requested[key] for key in requested if key == name}, {name: published}) is None
        ]
        if violations:
            return "; ".join(violations)
        demand = device.demand(option.want.amounts, option.want.amounts_text) or {}
        room = self._problem.suitability.room(device)
        shortages = [
            f"capacity {name}: {Quantity(nanos=amount.nanos, format=value.format)} needed, {_rest_text(room[name], value.nanos, value.format)}"
            for name, amount in demand.items()
            if amount.nanos > room[name]
            for value in [device.capacities[name].value]
        ]
        holders = _taken_by(self._holders.get(device.id, ()))
        return f"{'; '.join(shortages)}{f', the rest {holders}' if holders else ''}"


_BY_REFUSAL: Mapping[Refusal, Callable[[RefusalTexts, Option, Device], str]] = {
    Refusal.IN_USE: RefusalTexts.in_use,
    Refusal.CLASS_SELECTOR: RefusalTexts.class_selector,
    Refusal.SELECTOR: RefusalTexts.selector,
    Refusal.CAPACITY: RefusalTexts.capacity,
    Refusal.TAINT: RefusalTexts.taint,
}


def listed(names: Sequence[str], limit: int = 3) -> str:
    """Return different names, the first few of many."""
    different = list(dict.fromkeys(names))
    more = len(different) - limit
    return ", ".join(different[:limit]) + (f" and {more} more" if more > 0 else "")


def _failing_selector(option: Option, device: Device, error: AllocationError) -> str:
    """Name the expression that fails on a device. Other errors stay as they are."""
    matched = _FAILING.fullmatch(str(error))
    if matched is None:
        return str(error).replace(str(device.id), "it")
    number, owner, reason = matched.groups()
    expressions = option.want.selectors if owner == "request" else option.want.class_selectors
    return f"a selector of the {owner} fails: {reason}: {expressions[int(number)]}"


def _rest_text(left: int, total: int, form: Format) -> str:
    rest = Quantity(nanos=left, format=form) if left > 0 else "none"
    return f"{rest} of {Quantity(nanos=total, format=form)} left"


def _draw_format(spec: Object, counter_set: str, name: str) -> Format:
    """Return the format in which the device writes its draw, so that all amounts are shown in that format."""
    for consumption in json_types.objects(spec, "consumesCounters"):
        if json_types.text(consumption, "counterSet") == counter_set and name in json_types.mapping(consumption, "counters"):
            return quantity.parse(json_types.at(consumption, "counters", name, "value")).format
    return Format.DECIMAL


def _policy_text(policy: RequestPolicy | None) -> str:
    if policy is None:
        return "none"
    if policy.valid_values is not None:
        return f"one of {', '.join(map(str, policy.valid_values))}"
    span = policy.valid_range
    parts = () if span is None else (("at least", span.minimum), ("at most", span.maximum), ("in steps of", span.step))
    return " ".join(f"{word} {value}" for word, value in parts if value is not None) or f"{policy.default} by default"


def _taken_by(claims: Sequence[str]) -> str:
    return f"taken by {listed(claims)}" if claims else ""


def _taint_text(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"
