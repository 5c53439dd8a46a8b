"""Small random worlds of devices, counters, shares and claims, for the allocator and for exhaustive search alike."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from drakit_cluster.objects import devices, json_types, quantity
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator import allocator, problem
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes import exhaustive_allocator, simple_selectors

FEATURES = FeatureGates(
    enabled=FeatureGates().enabled | {Gate.LIST_TYPE_ATTRIBUTES, Gate.MIXINS, Gate.COMPATIBILITY_GROUPS, Gate.DERIVED_ATTRIBUTES}
)
GROUPS: list[list[str]] = [[], [], ["m"], ["v"], ["m", "v"]]
NODE: Object = {"metadata": {"name": "node-1"}}
DRIVERS = ("a", "b")
SETS = ("s0", "s1")
DERIVED = [f'device.attributes["{driver}"].{name}' for driver, name in (("a", "parent"), ("a", "size"), ("b", "size"))]
PARENTS: list[Json] = [{"string": "p"}, {"string": "q"}, {"strings": ["p", "r"]}, {"strings": ["q", "r"]}]
MIRROR = dict(zip(map(str, PARENTS), [PARENTS[1], PARENTS[0], PARENTS[3], PARENTS[2]], strict=True))
SELECTORS = ('device.driver == "b"', "device.allowMultipleAllocations == true", 'device.attributes["a"].size == "small"')
CLASSES: dict[str, Object] = {
    "any": {"metadata": {"name": "any"}, "spec": {}},
    "a": {"metadata": {"name": "a"}, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "a"'}}]}},
    "exclusive": {
        "metadata": {"name": "exclusive"},
        "spec": {"selectors": [{"cel": {"expression": "device.allowMultipleAllocations == false"}}]},
    },
    "big": {
        "metadata": {"name": "big"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "a" && device.attributes["a"].size == "big"'}}]},
    },
}


@dataclass(frozen=True)
class RandomAllocation:
    """One small world and what is asked of it. Pools of both drivers have the same name."""

    devices: Mapping[str, Sequence[Object]]
    counters: Mapping[str, Mapping[str, int]]
    held: frozenset[tuple[str, str]]
    shares: Mapping[tuple[str, str], int]
    claims: Sequence[Object]

    def slices(self) -> list[Object]:
        made: list[Object] = []
        for driver, listed in self.devices.items():
            pool: Object = {"name": "pool", "generation": 1, "resourceSliceCount": 2}
            sets: dict[str, Object] = {}
            for name, total in self.counters[driver].items():
                owner, _, counter = name.partition(".")
                sets.setdefault(owner, {})[counter] = {"value": str(total)}
            counters: list[Json] = [{"name": owner, "counters": found} for owner, found in sets.items()]
            base: Object = {"driver": driver, "pool": pool, "nodeName": "node-1"}
            made.append({"metadata": {"name": f"{driver}-0"}, "spec": {**base, "sharedCounters": counters}})
            made.append({"metadata": {"name": f"{driver}-1"}, "spec": {**base, "devices": json_types.from_objects(listed)}})
        return made

    def allocated(self) -> AllocatedState:
        state = AllocatedState()
        for driver, device in self.held:
            state.hold(DeviceId(driver, "pool", device))
        for (driver, device), amount in self.shares.items():
            state.share(DeviceId(driver, "pool", device), {"bandwidth": quantity.Quantity.of(amount)} if amount else {})
        return state

    def flat(self) -> list[tuple[str, Object]]:
        return [(driver, device) for driver in DRIVERS for device in self.devices[driver]]

    def allocator(self) -> allocator.Allocator:
        return allocator.Allocator(self.slices(), CLASSES, simple_selectors.SimpleSelectors(lists=True), FEATURES)

    def problem(self) -> problem.Problem:
        return self.allocator().problem(claims=self.claims, node=NODE, allocated=self.allocated())

    def decide(self) -> list[Object] | None:
        return self.allocator().allocate(claims=self.claims, node=NODE, allocated=self.allocated(), new_share_id=lambda: "share")

    def decide_exhaustively(self) -> tuple[exhaustive_allocator.Found, ...] | None:
        flat = self.flat()
        views = {(driver, json_types.text(device, "name")): devices.view_of(driver, device) for driver, device in flat}
        model = exhaustive_allocator.Model(flat, self.counters, CLASSES, simple_selectors.SimpleSelectors(lists=True), views)
        model.initial = exhaustive_allocator.State(
            held=self.held,
            drawn=self.held | frozenset(self.shares),
            taken=dict(self.shares),
            allocating=frozenset(),
            found=(),
        )
        return model.solve(self.claims, model.initial)


@functools.cache
def among(*options: Any) -> st.SearchStrategy[Any]:
    """Return the choice among some values. Strategies are made once here, because hypothesis checks each new one."""
    return st.sampled_from(options)


_PARENT, _GROUP = st.sampled_from(PARENTS), st.sampled_from(GROUPS)
_BOUND: st.SearchStrategy[list[str]] = st.sampled_from([[], [], ["r0"], ["r0", "r1"], ["r0/s0", "r1"]])
_AMOUNT = st.integers(0, 3).map(str)
_SOME_AMOUNTS = st.sets(_AMOUNT, min_size=1)
_AMOUNTS = st.dictionaries(among("x", "y"), st.integers(0, 2), max_size=2)


@functools.cache
@st.composite
def policies(draw: st.DrawFn) -> Object:
    """What a capacity may be asked for, sensible or not; mostly nothing is said."""
    kind = draw(among("none", "none", "none", "default", "values", "range"))
    policy: Object = {} if kind == "none" else {"default": draw(_AMOUNT)}
    if kind == "values":
        policy["validValues"] = json_types.from_strings(sorted(draw(_SOME_AMOUNTS)))
    if kind == "range":
        limits: Object = {"min": draw(_AMOUNT)}
        policy["validRange"] = limits
        for name in ("step", "max"):
            if draw(st.booleans()):
                limits[name] = str(draw(st.integers(1, 3)))
    return {"requestPolicy": policy} if policy else {}


@functools.cache
@st.composite
def shape(draw: st.DrawFn) -> Object:
    """A device without a name, of a counter set or a parent."""
    made: Object = {}
    attributes: Object = {}
    if draw(st.integers(0, 5)):
        attributes["parent"] = draw(_PARENT)
    if draw(st.integers(0, 7)):
        attributes["size"] = {"string": draw(among("big", "small"))}
    made["attributes"] = attributes
    if draw(st.booleans()):
        amounts = draw(_AMOUNTS)
        consumption: Object = {
            "counterSet": draw(among(*SETS)),
            "counters": {key: {"value": str(one)} for key, one in amounts.items()},
        }
        if groups := draw(_GROUP):
            consumption["compatibilityGroups"] = json_types.from_strings(groups)
        made["consumesCounters"] = [consumption]
    if not draw(st.integers(0, 2)):
        made["allowMultipleAllocations"] = True
    if draw(st.booleans()):
        made["capacity"] = {"bandwidth": {"value": str(draw(st.integers(1, 3))), **draw(policies())}}
    if not draw(st.integers(0, 9)):
        made["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    return made


@functools.cache
@st.composite
def block(draw: st.DrawFn) -> list[Object]:
    """Devices of which the second half mirrors the first: another counter set, another parent."""
    half = [draw(shape()) for _ in range(draw(st.integers(1, 3)))]
    mirrored = []
    for one in half:
        other = json_types.copy_object(one)
        for consumption in json_types.objects(other, "consumesCounters"):
            consumption["counterSet"] = SETS[1 - SETS.index(json_types.text(consumption, "counterSet"))]
        attributes = json_types.mapping(other, "attributes")
        if "parent" in attributes and draw(st.integers(0, 3)):
            attributes["parent"] = MIRROR[str(attributes["parent"])]
        mirrored.append(other)
    return draw(st.permutations([*half, *mirrored])) if draw(st.booleans()) else [*half, *mirrored]


@functools.cache
@st.composite
def device_list(draw: st.DrawFn) -> list[Object]:
    found = draw(block()) if draw(st.booleans()) else [draw(shape()) for _ in range(draw(st.integers(0, 5)))]
    return [{"name": f"d{place}", **one} for place, one in enumerate(found)]


@functools.cache
@st.composite
def option(draw: st.DrawFn, *, sub: bool) -> Object:
    made: Object = {"deviceClassName": draw(among("any", "any", "a", "a", "exclusive", "big"))}
    if draw(st.integers(0, 7)):
        made |= {"allocationMode": "ExactCount", "count": draw(among(1, 1, 1, 2, 3))}
    else:
        made["allocationMode"] = "All"
    if not draw(st.integers(0, 3)):
        made["capacity"] = {"requests": {"bandwidth": str(draw(st.integers(1, 2)))}}
    if not draw(st.integers(0, 4)):
        made["selectors"] = [{"cel": {"expression": draw(among(*SELECTORS))}}]
    if not draw(st.integers(0, 5)):
        made["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    if not draw(st.integers(0, 3)):
        made["derivedAttributes"] = [{"name": "a/parent", "expression": draw(among(*DERIVED))}]
    if not sub and not draw(st.integers(0, 7)):
        made["adminAccess"] = True
    return made


@functools.cache
@st.composite
def claim(draw: st.DrawFn, number: int) -> Object:
    requests: list[Json] = []
    for position in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 4)):
            requests.append({"name": f"r{position}", "exactly": draw(option(sub=False))})
        else:
            alternatives = [draw(option(sub=True)) | {"name": f"s{place}"} for place in range(draw(st.integers(1, 2)))]
            requests.append({"name": f"r{position}", "firstAvailable": json_types.from_objects(alternatives)})
    constraints: list[Json] = []
    for _ in range(draw(among(0, 0, 1, 2))):
        kind = draw(among("matchAttribute", "distinctAttribute"))
        bound = draw(_BOUND)
        constraints.append({kind: "a/parent", "requests": json_types.from_strings(bound)})
    return {
        "metadata": {"name": f"c{number}", "uid": f"uid-{number}"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }


@functools.cache
@st.composite
def random_allocation(draw: st.DrawFn) -> RandomAllocation:
    listed = {driver: draw(device_list()) for driver in DRIVERS}
    totals = {name: draw(st.integers(1, 4)) for name in ("x", "y")}
    spare = draw(among(0, 0, 1))
    counters = {
        driver: {f"{owner}.{name}": total + (spare if owner == "s1" else 0) for owner in SETS for name, total in totals.items()}
        for driver in DRIVERS
    }
    held, shares = set(), {}
    left = {driver: dict(owned) for driver, owned in counters.items()}
    for driver, found in listed.items():
        for one in found:
            if draw(st.integers(0, 6)) or not _draw(left[driver], one):
                continue
            key = (driver, json_types.text(one, "name"))
            if one.get("allowMultipleAllocations") and draw(st.integers(0, 3)):
                shares[key] = 1 if "capacity" in one else 0
            else:
                held.add(key)
    return RandomAllocation(listed, counters, frozenset(held), shares, [draw(claim(number)) for number in range(draw(st.integers(1, 2)))])


def _draw(left: dict[str, int], one: Object) -> bool:
    """Draw the device's counters if they suffice."""
    amounts = {
        f"{json_types.text(consumption, 'counterSet')}.{name}": quantity.parse(json_types.at(counter, "value")).units
        for consumption in json_types.objects(one, "consumesCounters")
        for name, counter in json_types.mapping(consumption, "counters").items()
    }
    if any(left[name] < amount for name, amount in amounts.items()):
        return False
    for name, amount in amounts.items():
        left[name] -= amount
    return True
