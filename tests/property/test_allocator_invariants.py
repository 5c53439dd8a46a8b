"""What must hold of every allocation, recomputed from its results alone, and of giving it back."""

from collections import Counter

from hypothesis import HealthCheck, assume, given, settings

from drakit_cluster.objects import devices, json_types, quantity
from drakit_cluster.objects.devices import DeviceId, view_of
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes import examples
from fakes.random_allocations import CLASSES, RandomAllocation, random_allocation
from fakes.simple_selectors import SimpleSelectors

BOUNDED = settings(
    max_examples=examples.count(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def decided(world: RandomAllocation) -> list[Object]:
    try:
        results = world.decide()
    except devices.AllocationError:
        results = None
    assume(results is not None)
    return results or []


def device_results(world: RandomAllocation, allocations: list[Object]) -> list[tuple[int, Object, Object]]:
    """Return (claim number, result, device) of every result."""
    flat = {(driver, device["name"]): device for driver, device in world.flat()}
    return [
        (number, result, flat[json_types.text(result, "driver"), result["device"]])
        for number, allocation in enumerate(allocations)
        for result in json_types.objects(allocation, "devices", "results")
    ]


@BOUNDED
@given(random_allocation())
def test_no_counter_is_overdrawn(world: RandomAllocation) -> None:
    drawing = {(driver, name) for driver, name in world.held} | set(world.shares)
    for _, result, _ in device_results(world, decided(world)):
        if not result.get("adminAccess"):
            drawing.add((json_types.text(result, "driver"), json_types.text(result, "device")))
    used: Counter[tuple[str, str]] = Counter()
    for driver, device in world.flat():
        if (driver, device["name"]) not in drawing:
            continue
        for consumption in json_types.objects(device, "consumesCounters"):
            for name, counter in json_types.mapping(consumption, "counters").items():
                used[driver, f"{json_types.text(consumption, 'counterSet')}.{name}"] += quantity.parse(
                    json_types.at(counter, "value")
                ).units
    assert all(amount <= world.counters[driver][name] for (driver, name), amount in used.items())


@BOUNDED
@given(random_allocation())
def test_no_capacity_is_overdrawn_and_every_share_has_its_own_id(world: RandomAllocation) -> None:
    used: Counter[tuple[str, str]] = Counter(dict(world.shares))
    for _, result, device in device_results(world, decided(world)):
        shared = device.get("allowMultipleAllocations") is True
        assert ("shareID" in result) == shared
        assert ("consumedCapacity" in result) == (shared and "capacity" in device)
        for amount in json_types.mapping(result, "consumedCapacity").values():
            used[json_types.text(result, "driver"), json_types.text(result, "device")] += quantity.parse(amount).units
    for driver, device in world.flat():
        if (published := json_types.at(device, "capacity", "bandwidth", "value")) is not None:
            assert used[driver, json_types.text(device, "name")] <= quantity.parse(published).units


@BOUNDED
@given(random_allocation())
def test_no_device_is_given_twice_unless_it_is_shared_or_for_admins(world: RandomAllocation) -> None:
    holders = Counter(world.held)
    for _, result, device in device_results(world, decided(world)):
        if not result.get("adminAccess") and device.get("allowMultipleAllocations") is not True:
            key = (json_types.text(result, "driver"), json_types.text(result, "device"))
            assert key not in world.shares
            holders[key] += 1
    assert all(count == 1 for count in holders.values())


@BOUNDED
@given(random_allocation())
def test_every_result_satisfies_its_selectors(world: RandomAllocation) -> None:
    selectors = SimpleSelectors(lists=True)
    for number, result, device in device_results(world, decided(world)):
        option = option_of(world.claims[number], json_types.text(result, "request"))
        device_class = CLASSES[json_types.text(option, "deviceClassName")]
        view = view_of(json_types.text(result, "driver"), device)
        for selector in (*json_types.objects(device_class, "spec", "selectors"), *json_types.objects(option, "selectors")):
            assert selectors.matches(json_types.text(selector, "cel", "expression"), view)


def option_of(claim: Object, name: str) -> Object:
    base, _, sub = name.partition("/")
    request = next(one for one in json_types.objects(claim, "spec", "devices", "requests") if one["name"] == base)
    if not sub:
        return json_types.mapping(request, "exactly")
    return next(one for one in json_types.objects(request, "firstAvailable") if one["name"] == sub)


@BOUNDED
@given(random_allocation())
def test_every_result_satisfies_its_constraints(world: RandomAllocation) -> None:
    results = device_results(world, decided(world))
    for number, claim in enumerate(world.claims):
        for constraint in json_types.objects(claim, "spec", "devices", "constraints"):
            bound = set(json_types.strings(constraint, "requests"))
            values = [
                parents(claim, result, device)
                for owner, result, device in results
                if owner == number and (not bound or bound & {result["request"], str(result["request"]).split("/", maxsplit=1)[0]})
            ]
            assert all(values)
            if "matchAttribute" in constraint:
                assert not values or set.intersection(*values)
            else:
                assert sum(map(len, values)) == len(set().union(*values))


def parents(claim: Object, result: Object, device: Object) -> set[str]:
    """Return the values of a/parent: those that the request derives, or those that driver a publishes."""
    driver = json_types.text(result, "driver")
    for derived in json_types.objects(option_of(claim, json_types.text(result, "request")), "derivedAttributes"):
        values = SimpleSelectors(lists=True).derive(json_types.text(derived, "expression"), view_of(driver, device))
        return {str(value) for _, value in values}
    attribute = json_types.at(device, "attributes", "parent") if driver == "a" else None
    return {json_types.text(attribute, "string"), *json_types.strings(attribute, "strings")} - {""}


@BOUNDED
@given(random_allocation())
def test_allocation_then_release_restores_the_world(world: RandomAllocation) -> None:
    results = decided(world)
    state = world.allocated()
    before = state.snapshot()
    claims: list[Object] = [{**claim, "status": {"allocation": result}} for claim, result in zip(world.claims, results, strict=True)]
    for claim in claims:
        state.add(claim)
    for claim in claims:
        state.remove(claim)
    assert state.snapshot() == before


@BOUNDED
@given(random_allocation())
def test_the_state_kept_step_by_step_is_the_state_of_all_claims(world: RandomAllocation) -> None:
    claims: list[Object] = [{**claim, "status": {"allocation": result}} for claim, result in zip(world.claims, decided(world), strict=True)]
    step_by_step = AllocatedState()
    for claim in (*claims, *claims):
        step_by_step.add(claim)
    assert step_by_step.snapshot() == AllocatedState.of(claims).snapshot()
    for claim in claims:
        for result in json_types.objects(claim, "status", "allocation", "devices", "results"):
            device = DeviceId(json_types.text(result, "driver"), "pool", json_types.text(result, "device"))
            assert result.get("adminAccess") or step_by_step.use(device).held or step_by_step.use(device).shared
