"""Allocation by exhaustive search over plain JSON: slow, obvious, and without anything that the real allocator uses to be fast.

Written from Kubernetes' rules: claims, requests and devices in order, depth first, within one request only later devices than the last.
State is copied, never undone. Every driver has one pool, and all pools have the same name.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drakit_cluster.objects import devices, json_types, quantity, taints
from drakit_cluster.objects.json_types import Object
from fakes import simple_selectors


class Found(NamedTuple):
    """One device of a solution."""

    claim: int
    request: str
    driver: str
    device: str


class State(NamedTuple):
    """What is in use, as immutable values."""

    held: frozenset[tuple[str, str]]
    drawn: frozenset[tuple[str, str]]
    taken: Mapping[tuple[str, str], int]
    allocating: frozenset[tuple[int, tuple[str, str]]]
    found: tuple[Found, ...]


class Model:
    """``devices``: (driver, device object) in order; ``counters``: {driver: {"set.name": total}}; ``bandwidth`` is the only capacity."""

    def __init__(
        self,
        devices: Sequence[tuple[str, Object]],
        counters: Mapping[str, Mapping[str, int]],
        classes: Mapping[str, Object],
        selectors: devices.SelectorPort,
        views: Mapping[tuple[str, str], object],
    ) -> None:
        self.devices = devices
        self.counters = counters
        self.classes = classes
        self.selectors = selectors
        self.views = views
        self.steps = 0

    def solve(self, claims: Sequence[Object], state: State) -> tuple[Found, ...] | None:
        for claim in claims:
            for request in json_types.objects(claim, "spec", "devices", "requests"):
                for option in [json_types.mapping(request, "exactly"), *json_types.objects(request, "firstAvailable")]:
                    if option.get("allocationMode") == "All":
                        self.every(option, state)
        return self._request(claims, 0, 0, state)

    def every(self, option: Object, state: State) -> list[int]:
        return [
            number
            for number, (driver, device) in enumerate(self.devices)
            if self._selected(option, driver, device)
            and self._fits(option, driver, device, state._replace(allocating=frozenset()), start=True)
        ]

    def _request(self, claims: Sequence[Object], claim: int, number: int, state: State) -> tuple[Found, ...] | None:
        if claim == len(claims):
            return state.found
        requests = json_types.objects(claims[claim], "spec", "devices", "requests")
        if number == len(requests):
            return self._request(claims, claim + 1, 0, state)
        request = requests[number]
        name = json_types.text(request, "name")
        if alternatives := json_types.objects(request, "firstAvailable"):
            options = [(f"{name}/{json_types.text(one, 'name')}", one) for one in alternatives]
        else:
            options = [(name, json_types.mapping(request, "exactly"))]
        for full_name, option in options:
            solution = self._option(claims, claim, number, full_name, option, state)
            if solution is not None:
                return solution
        return None

    def _option(
        self, claims: Sequence[Object], claim: int, number: int, name: str, option: Object, state: State
    ) -> tuple[Found, ...] | None:
        if option.get("allocationMode") == "All":
            every = self.every(option, self.initial)
            return self._all(claims, claim, number, name, option, every, state) if every else None
        return self._count(claims, claim, number, name, option, json_types.number(option, "count"), 0, state)

    initial: State

    def _all(
        self,
        claims: Sequence[Object],
        claim: int,
        number: int,
        name: str,
        option: Object,
        every: Sequence[int],
        state: State,
    ) -> tuple[Found, ...] | None:
        if not every:
            return self._request(claims, claim, number + 1, state)
        after = self._take(claims[claim], claim, name, option, every[0], state, must=True)
        return None if after is None else self._all(claims, claim, number, name, option, every[1:], after)

    def _count(
        self,
        claims: Sequence[Object],
        claim: int,
        number: int,
        name: str,
        option: Object,
        count: int,
        start: int,
        state: State,
    ) -> tuple[Found, ...] | None:
        self.steps += 1
        if not count:
            return self._request(claims, claim, number + 1, state)
        for position in range(start, len(self.devices)):
            after = self._take(claims[claim], claim, name, option, position, state, must=False)
            if after is None:
                continue
            solution = self._count(claims, claim, number, name, option, count - 1, position + 1, after)
            if solution is not None:
                return solution
        return None

    def _take(self, claim: Object, index: int, name: str, option: Object, position: int, state: State, *, must: bool) -> State | None:
        driver, device = self.devices[position]
        key = (driver, json_types.text(device, "name"))
        admin, shared = option.get("adminAccess") is True, device.get("allowMultipleAllocations") is True
        if self._is_used(index, key, state, admin=admin, shared=shared) or not self._selected(option, driver, device):
            return None
        draws = not admin and key not in state.drawn
        short = draws and not (self._counters_suffice(driver, device, state) and self._groups_agree(driver, device, state))
        if short or taints.prevents(json_types.objects(device, "taints"), json_types.objects(option, "tolerations")):
            return None
        if not self._constraints_hold(claim, index, name, driver, device, state):
            if must:
                raise devices.AllocationError("a constraint forbids all devices")
            return None
        if not self._fits(option, driver, device, state):
            return None
        amount = self._amount(option, device)
        return state._replace(
            drawn=state.drawn if admin else state.drawn | {key},
            taken={**state.taken, key: state.taken.get(key, 0) + amount} if shared else state.taken,
            allocating=state.allocating if shared else state.allocating | {(index, key)},
            found=(*state.found, Found(index, name, *key)),
        )

    def _is_used(self, index: int, key: tuple[str, str], state: State, *, admin: bool, shared: bool) -> bool:
        if admin:
            return (index, key) in state.allocating
        if key in state.held or any(one == key for _, one in state.allocating):
            return True
        return not shared and (key in state.drawn or bool(state.taken.get(key)))

    def _selected(self, option: Object, driver: str, device: Object) -> bool:
        device_class = self.classes[json_types.text(option, "deviceClassName")]
        selectors = [*json_types.objects(device_class, "spec", "selectors"), *json_types.objects(option, "selectors")]
        view = self.views[driver, json_types.text(device, "name")]
        try:
            return all(self.selectors.matches(json_types.text(one, "cel", "expression"), view) for one in selectors)  # type: ignore[arg-type]  # Views by key.
        except devices.SelectorError as error:
            raise devices.AllocationError(str(error)) from error

    def _amount(self, option: Object, device: Object) -> int:
        """Return what the option takes of the device's bandwidth, 0 without one; raise ValueError where the policy forbids it."""
        requested = json_types.at(option, "capacity", "requests", "bandwidth")
        published = json_types.mapping(device, "capacity", "bandwidth")
        if not published:
            return 0
        policy = json_types.mapping(published, "requestPolicy")
        default = json_types.text(policy, "default")
        if requested is None:
            return int(default or json_types.text(published, "value"))
        wanted = int(json_types.text(requested))
        if values := [int(one) for one in json_types.strings(policy, "validValues")]:
            amount = min((one for one in values if one >= wanted), default=wanted)
            return _allowed(amount, amount in values or str(amount) == default)
        if limits := json_types.mapping(policy, "validRange"):
            low, step, high = (
                int(json_types.text(limits, name) or otherwise) for name, otherwise in (("min", 0), ("step", 1), ("max", 99))
            )
            amount = max(low, low + -(-(wanted - low) // step) * step)
            computed = "step" in limits and wanted >= low
            return _allowed(amount, amount <= high or (not computed and str(amount) == default))
        return wanted

    def _fits(self, option: Object, driver: str, device: Object, state: State, *, start: bool = False) -> bool:
        published = json_types.at(device, "capacity", "bandwidth", "value")
        if published is None:
            return json_types.at(option, "capacity", "requests", "bandwidth") is None
        taken = (self.initial if start else state).taken.get((driver, json_types.text(device, "name")), 0)
        try:
            return taken + self._amount(option, device) <= quantity.parse(published).units
        except ValueError:
            return False

    def _draws(self, device: Object) -> dict[str, int]:
        draws: dict[str, int] = {}
        for consumption in json_types.objects(device, "consumesCounters"):
            owner = json_types.text(consumption, "counterSet")
            for counter_name, counter in json_types.mapping(consumption, "counters").items():
                name = f"{owner}.{counter_name}"
                draws[name] = draws.get(name, 0) + quantity.parse(json_types.at(counter, "value")).units
        return draws

    def _counters_suffice(self, driver: str, device: Object, state: State) -> bool:
        mine = self._draws(device)
        if not mine:
            return True
        left = dict(self.counters[driver])
        for owner, other in self.devices:
            if owner == driver and (owner, json_types.text(other, "name")) in state.drawn:
                for name, amount in self._draws(other).items():
                    left[name] -= amount
        return all(left[name] >= mine.get(name, 0) for name in left)

    def _groups_agree(self, driver: str, device: Object, state: State) -> bool:
        """Return whether all devices in use of each of the device's counter sets have a group in common with it, or all have none."""
        mine = self._groups(device)
        in_use = [(driver, json_types.text(other, "name")) for owner, other in self.devices if owner == driver]
        earlier = [key for key in in_use if key in self.initial.drawn]
        added = [key for key in in_use if key in state.drawn - self.initial.drawn]
        for owner, groups in mine.items():
            common: set[str] | None = None
            for key in (*earlier, *added):
                others = self._groups(self._device(*key)).get(owner)
                if others is None:
                    continue
                if common is None:
                    common = set(others)
                elif "" not in common | others:
                    common &= others
            if common is not None and not common & groups:
                return False
        return True

    def _groups(self, device: Object) -> dict[str, set[str]]:
        """Return the device's groups by counter set; the empty name stands for none."""
        return {
            json_types.text(consumption, "counterSet"): set(json_types.strings(consumption, "compatibilityGroups")) or {""}
            for consumption in json_types.objects(device, "consumesCounters")
        }

    def _constraints_hold(self, claim: Object, index: int, name: str, driver: str, device: Object, state: State) -> bool:
        for constraint in json_types.objects(claim, "spec", "devices", "constraints"):
            bound = json_types.strings(constraint, "requests")
            if bound and name not in bound and name.split("/", maxsplit=1)[0] not in bound:
                continue
            attribute = json_types.text(constraint, "matchAttribute") or json_types.text(constraint, "distinctAttribute")
            mine = self._values(driver, device, _read(claim, name, attribute))
            others = [
                self._values(one.driver, self._device(one.driver, one.device), _read(claim, one.request, attribute))
                for one in state.found
                if one.claim == index and (not bound or one.request in bound or one.request.split("/", maxsplit=1)[0] in bound)
            ]
            if not mine:
                return False
            if "matchAttribute" in constraint:
                if not mine.intersection(*others):
                    return False
            elif any(mine & other for other in others):
                return False
        return True

    def _device(self, driver: str, name: str) -> Object:
        return next(device for owner, device in self.devices if owner == driver and device["name"] == name)

    def _values(self, driver: str, device: Object, attribute: str) -> set[tuple[str, str]]:
        domain, _, identifier = attribute.partition("/")
        if not identifier:
            found = json_types.at(device, "attributes", domain)
        elif domain != driver:
            found = json_types.at(device, "attributes", attribute)
        else:
            found = json_types.at(device, "attributes", attribute) or json_types.at(device, "attributes", identifier)
        values = [json_types.text(found, "string"), *json_types.strings(found, "strings")]
        return {("string", value) for value in values if value}


def _read(claim: Object, name: str, attribute: str) -> str:
    """Return the attribute that a request reads for a constraint's: that of its expression where the request derives it."""
    for request in json_types.objects(claim, "spec", "devices", "requests"):
        base = json_types.text(request, "name")
        for option_name, option in [
            (base, json_types.mapping(request, "exactly")),
            *((f"{base}/{json_types.text(one, 'name')}", one) for one in json_types.objects(request, "firstAvailable")),
        ]:
            for derived in json_types.objects(option, "derivedAttributes") if option_name == name else ():
                if derived["name"] == attribute:
                    found = simple_selectors.VALUE.fullmatch(json_types.text(derived, "expression"))
                    assert found is not None, derived
                    return f"{found[1]}/{found[2]}"
    return attribute


def _allowed(amount: int, allowed: bool) -> int:  # noqa: FBT001 - the one thing it is about.
    if not allowed:
        raise ValueError(f"the policy forbids {amount}")
    return amount
