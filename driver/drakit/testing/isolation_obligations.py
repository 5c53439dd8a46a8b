"""What a driver owes to several claims at once: none changes the hardware of another, and none gets a part that another has.

Each check reads the hardware before anything can repair it: drakit calls ``prepare`` again for a prepared claim, and a driver that is correct there
restores what an ``unprepare`` of another claim destroyed. See ``drakit.testing.obligations``.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import inventory, quantity, records
from drakit.node import resolution
from drakit.testing import bench as benches
from drakit.testing import inventory_obligations, parts
from drakit.testing import node as nodes
from drakit.testing import report as reports

Pair = tuple[str, tuple[str, ...]]
"""The device of one claim, and the devices of a second claim that fits beside it."""


def keeps_the_hardware_of_others(bench: benches.Bench) -> None:
    """Require that a claim's whole life leaves the hardware of another claim as it was with that claim alone.

    The end of the older claim is tried too. What it damaged shows when ``prepare`` of the other claim restores it, which otherwise changes nothing.
    """
    _require_hardware(bench)
    with bench.node() as node:
        tried = False
        for one, others in pairs(bench, node):
            first = bench.claim(node, one)
            node.prepare(first)
            before, second = bench.hardware(), bench.claim(node, *others)
            if not node.try_prepare(second).error:
                tried = True
                node.unprepare(second)
                after = bench.hardware()
                name = f"prepare and unprepare of another claim for {' and '.join(others)} changed the hardware of a claim for {one}"
                benches.require_unchanged(before, after, name)
                node.prepare(second)
                both = bench.hardware()
                node.prepare(first)
                name = f"a second prepare of a claim for {one} changed hardware beside a claim for {' and '.join(others)}"
                benches.require_unchanged(both, bench.hardware(), name)
                node.unprepare(first)
                left = bench.hardware()
                node.prepare(second)
                name = f"unprepare of a claim for {one} changed the hardware of a claim for {' and '.join(others)}, and prepare restored it"
                benches.require_unchanged(left, bench.hardware(), name)
            node.unprepare(second)
            node.unprepare(first)
    if not tried:
        raise reports.NotApplicableError("no two claims can be prepared at once")


def keeps_requests_apart(bench: benches.Bench) -> None:
    """Require that two requests of one claim do not overwrite each other's hardware."""
    _require_hardware(bench)
    with bench.node() as node:
        tried = False
        for one, others in pairs(bench, node):
            if len(others) > 1:
                continue
            claim = _with_different_amounts(node, node.claims.fetch(bench.claim(node, one, *others)))
            try:
                states = [_state_with(bench, node, claim, results) for results in (claim.results[:1], claim.results[1:], claim.results)]
            except nodes.RefusedError:
                continue
            tried = True
            first, second, both = states
            if first != second and both in (first, second):
                kept, lost = (one, others[0]) if both == first else (others[0], one)
                alone = "one share" if one == others[0] else f"a claim for {kept} alone, so {lost} is overwritten"
                raise AssertionError(
                    f"one claim with requests for {one} and {others[0]} has the hardware of {alone}; "
                    "keep the state by grant.share_id or by device too, not by the claim's UID alone"
                )
    if not tried:
        raise reports.NotApplicableError("no claim can have two requests")


def plans_different_intents(bench: benches.Bench) -> None:
    """Require that two grants under one lock have different intents, because an intent identifies a part of the hardware."""
    with bench.node() as node:
        offered, tried = node.all_devices, False
        for one, others in pairs(bench, node):
            if set(offered[one].lock_names).isdisjoint(offered[others[0]].lock_names):
                continue
            with _prepared(bench, node, (one,), others):
                grants = [grant for entry in node.entries for grant in entry.grants]
            for first, second in itertools.combinations((grant for grant in grants if grant.intent), 2):
                tried = True
                if first.intent == second.intent:
                    raise AssertionError(
                        f"plan() chose {records.thaw(first.intent)} for {first.device.name} and, at the same time, for {second.device.name}; "
                        "choose what no intent of self.planned(grant.device) has"
                    )
    if not tried:
        raise reports.NotApplicableError("plan() chooses nothing for two devices under one lock")


def gives_each_part_once(bench: benches.Bench) -> None:
    """Require that no two claims get the same part, by the variables and device nodes that ``exclusive`` names."""
    if not bench.exclusive:
        raise reports.NotApplicableError("exclusive names no variable or device node that identifies a part, such as 'ENGINE_*'")
    seen: set[str] = set()
    with bench.node() as node:
        for one, others in pairs(bench, node):
            with _prepared(bench, node, (one,), others) as views:
                given = [list(parts.of_container(bench.exclusive, view.env, view.device_nodes)) for view in views]
            seen.update(part.pattern for of_claim in given for part in of_claim)
            if len(given) > 1 and (twice := parts.given_twice(*given)):
                raise AssertionError(f"{twice[0]} of a claim for {one} and {twice[1]} of a claim for {', '.join(others)} are the same part")
    if missing := [pattern for pattern in bench.exclusive if pattern not in seen]:
        raise AssertionError(f"exclusive {missing[0]!r}: no container gets a variable or device node of this name; correct the pattern")


def pairs(bench: benches.Bench, node: nodes.Node) -> Iterator[Pair]:
    """Yield each device to try with others that fit beside it: shares of itself, a part of its hardware, other hardware, and two devices."""
    names = list(dict.fromkeys(itertools.chain.from_iterable(bench.groups)))
    for pool in inventory_obligations.pools(node):
        offered = pool.flat()
        by_name = offered.by_name()
        for device in (by_name[name] for name in names if name in by_name):
            if device.allow_multiple_allocations and takes(device, bench.consumed, times=2):
                yield device.name, (device.name,)
                if takes(device, bench.consumed, times=3):
                    yield device.name, (device.name, device.name)
            yield from ((device.name, others) for others in _beside(offered, device))


def beside_under_one_lock(bench: benches.Bench, node: nodes.Node, name: str, *, claims: int) -> str | None:
    """Return a device that fits beside so many claims for a device and has a lock in common with it, such as itself if it is shared."""
    offered = node.all_devices
    near = (others[0] for one, others in pairs(bench, node) if one == name and len(others) == 1)
    locked = (other for other in near if not set(offered[other].lock_names).isdisjoint(offered[name].lock_names))
    return next((other for other in locked if other != name or takes(offered[name], bench.consumed, times=claims + 1)), None)


def enforces_amounts(bench: benches.Bench) -> None:
    """Require that twice the amounts change hardware or edits, because a driver enforces what the scheduler accounted."""
    _require_hardware(bench)
    with bench.node() as node:
        tried = False
        for name in dict.fromkeys(itertools.chain.from_iterable(bench.groups)):
            claim = node.claims.fetch(bench.claim(node, name))
            (result,) = claim.results
            (doubled,) = _with_different_amounts(node, dataclasses.replace(claim, results=(result, result))).results[1:]
            if doubled == result:
                continue
            tried = True
            if _given(bench, node, claim, result) == _given(bench, node, claim, doubled):
                amounts = ", ".join(
                    f"{key} {result.consumed_capacity[key]} or {amount}" for key, amount in doubled.consumed_capacity.items()
                )
                raise reports.AdviceError(
                    f"{name}: hardware and edits are the same whether a claim takes {amounts}; enforce grant.consumed_capacity, if the hardware can"
                )
    if not tried:
        raise reports.NotApplicableError("no device can be given in two amounts")


def _given(bench: benches.Bench, node: nodes.Node, claim: claims.Claim, result: claims.AllocationResult) -> tuple[object, object]:
    """Return the hardware's state and the container's view while only this result of the claim is prepared."""
    ref = node.claims.put(dataclasses.replace(claim, results=(result,)))
    view = node.prepare(ref)
    state = bench.hardware()
    node.unprepare(ref)
    return state, view


def takes(device: devices.Device, consumed: Mapping[str, quantity.Amount], *, times: int) -> bool:
    """Return whether so many claims of these amounts fit on a device."""
    amounts = {name: quantity.Quantity.of(given) for name, given in consumed.items() if name in device.capacity}
    for name, capacity in device.capacity.items():
        amount = amounts.get(name, capacity.consumed_by(None))
        if amount is not None and amount.nanos * times > capacity.value.nanos:
            return False
    return True


def fit(offered: inventory.Inventory, *chosen: devices.Device) -> bool:
    """Return whether the counters have enough for all of these devices."""
    consumed = resolution.counters_consumed(chosen)
    return all(
        consumed[counter_set.name, counter] <= total.nanos
        for counter_set in offered.counter_sets
        for counter, total in counter_set.counters.items()
    )


def _beside(offered: inventory.Inventory, device: devices.Device) -> Iterator[tuple[str, ...]]:
    """Yield the first device that shares hardware, the first that does not, and two devices, each as far as they fit by counters."""
    others = [other for other in offered.devices if other is not device and fit(offered, device, other)]
    near = [other for other in others if not set(other.lock_names).isdisjoint(device.lock_names)]
    far = [other for other in others if set(other.lock_names).isdisjoint(device.lock_names)]
    yield from ((other.name,) for other in (*near[:1], *far[:1]))
    chosen = (*near, *far)[:_MOST_OTHERS]
    yield from itertools.islice(
        ((one.name, two.name) for one, two in itertools.combinations(chosen, 2) if fit(offered, device, one, two)), 1
    )


_MOST_OTHERS = 16


@contextlib.contextmanager
def _prepared(bench: benches.Bench, node: nodes.Node, *groups: Sequence[str]) -> Iterator[Sequence[nodes.ContainerView]]:
    """Prepare a claim for each group of devices, yield the containers' views, and unprepare the claims. Views are missing after a refusal."""
    refs = [bench.claim(node, *group) for group in groups]
    views: list[nodes.ContainerView] = []
    try:
        with contextlib.suppress(nodes.RefusedError):
            views += map(node.prepare, refs)
        yield views
    finally:
        for ref in refs:
            node.unprepare(ref)


def _state_with(bench: benches.Bench, node: nodes.Node, claim: claims.Claim, results: tuple[claims.AllocationResult, ...]) -> object:
    """Return the hardware's state while only these results of the claim are prepared."""
    ref = node.claims.put(dataclasses.replace(claim, results=results))
    node.prepare(ref)
    state = bench.hardware()
    node.unprepare(ref)
    return state


def _with_different_amounts(node: nodes.Node, claim: claims.Claim) -> claims.Claim:
    """Return the claim with twice the amounts for its second request where the device has so much, so that an overwritten one shows."""
    first, second = claim.results
    capacity = node.all_devices[second.device].capacity
    doubled = {
        name: twice
        for name, amount in second.consumed_capacity.items()
        if (offered := capacity.get(name)) is not None
        and offered.consumed_by(twice := amount + amount) == twice
        and (twice + amount).nanos <= offered.value.nanos
    }
    return dataclasses.replace(
        claim, results=(first, dataclasses.replace(second, consumed_capacity={**second.consumed_capacity, **doubled}))
    )


def _require_hardware(bench: benches.Bench) -> None:
    if not bench.has_hardware:
        raise reports.NotApplicableError("hardware= is not given, so damage to another claim's device cannot be seen")
