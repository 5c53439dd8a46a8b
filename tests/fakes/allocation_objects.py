"""Small API objects for allocator tests, and one call to allocate over them. Driver, pool, node and class have fixed names."""

from collections.abc import Mapping, Sequence

from drakit_cluster.objects import devices, json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator import allocator, known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.simple_selectors import SimpleSelectors

DRIVER = "drv"
NODE: Object = {"metadata": {"name": "node-1", "labels": {"zone": "a"}}}
CLASSES: dict[str, Object] = {
    "any": {"metadata": {"name": "any"}, "spec": {}},
    "drv": {"metadata": {"name": "drv"}, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "drv"'}}]}},
}
ALL_FEATURES = FeatureGates(enabled=FeatureGates().enabled | {Gate.LIST_TYPE_ATTRIBUTES, Gate.MIXINS, Gate.COMPATIBILITY_GROUPS})


def without(*gates: Gate) -> FeatureGates:
    """Return all features but these."""
    return FeatureGates(enabled=ALL_FEATURES.enabled - set(gates))


def device(name: str, *, draws: Mapping[str, str] | None = None, **fields: Json) -> Object:
    """Return a device; ``draws`` maps "set.counter" to an amount."""
    made: Object = {"name": name, **fields}
    if draws:
        made["consumesCounters"] = [
            {"counterSet": key.split(".")[0], "counters": {key.split(".")[1]: {"value": amount}}} for key, amount in draws.items()
        ]
    return made


def strings(**values: str | list[str]) -> Object:
    """Return attributes of strings, or of lists of strings."""
    return {name: {"string": value} if isinstance(value, str) else {"strings": list(value)} for name, value in values.items()}


def shared(name: str, bandwidth: str | None = None, policy: Object | None = None, **fields: Json) -> Object:
    """Return a device for many, with a bandwidth if one is given."""
    made: Object = {"name": name, "allowMultipleAllocations": True, **fields}
    if bandwidth is not None:
        made["capacity"] = {"bandwidth": {"value": bandwidth} | ({"requestPolicy": policy} if policy else {})}
    return made


def resource_slice(
    devices: Sequence[Object] = (),
    *,
    name: str = "s-0",
    driver: str = DRIVER,
    pool: str = "pool",
    count: int = 1,
    generation: int = 1,
    counters: Mapping[str, str] | None = None,
    place: Object | None = None,
    **fields: Json,
) -> Object:
    """Return a slice; ``counters`` maps "set.counter" to a total; ``place`` replaces ``nodeName: node-1``."""
    spec: Object = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **(place if place is not None else {"nodeName": "node-1"}),
        **fields,
    }
    if devices:
        spec["devices"] = json_types.from_objects(devices)
    if counters:
        sets: dict[str, Object] = {}
        for key, total in counters.items():
            sets.setdefault(key.split(".")[0], {})[key.split(".")[1]] = {"value": total}
        spec["sharedCounters"] = [{"name": owner, "counters": found} for owner, found in sets.items()]
    return {"metadata": {"name": name}, "spec": spec}


def partitioned(devices: Sequence[Object], counters: Mapping[str, str], driver: str = DRIVER, pool: str = "pool") -> list[Object]:
    """Return the two slices of a pool with counters."""
    return [
        resource_slice(name=f"{driver}-0", driver=driver, pool=pool, count=2, counters=counters),
        resource_slice(devices, name=f"{driver}-1", driver=driver, pool=pool, count=2),
    ]


def request(name: str = "r", *, count: int = 1, mode: str = "ExactCount", device_class: str = "any", **fields: Json) -> Object:
    """Return an exact request."""
    exactly: Object = {"deviceClassName": device_class, "allocationMode": mode, **fields}
    if mode == "ExactCount":
        exactly["count"] = count
    return {"name": name, "exactly": exactly}


def first_available(name: str, *alternatives: Object) -> Object:
    """Return a request for the first of exact requests that fits; they become s0, s1, ..."""
    subs: list[Json] = [
        {**json_types.mapping(alternative, "exactly"), "name": f"s{place}"} for place, alternative in enumerate(alternatives)
    ]
    return {"name": name, "firstAvailable": subs}


def bandwidth(amount: str) -> Object:
    """Return a request's ``capacity`` for an amount of bandwidth."""
    return {"requests": {"bandwidth": amount}}


def claim(*requests: Object, constraints: Sequence[Object] = (), config: Sequence[Object] = (), name: str = "c") -> Object:
    """Return a claim."""
    devices: Object = {"requests": json_types.from_objects(requests)}
    if constraints:
        devices["constraints"] = json_types.from_objects(constraints)
    if config:
        devices["config"] = json_types.from_objects(config)
    return {"metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"}, "spec": {"devices": devices}}


def allocated(made: Object, result: Object) -> Object:
    """Return the claim with its allocation."""
    return {**made, "status": {"allocation": result}}


def decide(
    slices: Sequence[Object],
    *claims: Object,
    used: AllocatedState | None = None,
    features: FeatureGates = ALL_FEATURES,
    classes: Mapping[str, Object] | None = None,
    node: Object | None = None,
    selectors: devices.SelectorPort | None = None,
    errors: KnownErrors = known_errors.NONE,
) -> list[Object] | None:
    """Allocate all claims together; share ids are share-1, share-2, ..."""
    numbers = iter(range(1, 10_000))
    chosen_selectors = selectors or SimpleSelectors(lists=features.on(Gate.LIST_TYPE_ATTRIBUTES))
    made = allocator.Allocator(slices, CLASSES if classes is None else classes, chosen_selectors, features, errors)
    return made.allocate(
        claims=claims,
        node=NODE if node is None else node,
        allocated=used or AllocatedState(),
        new_share_id=lambda: f"share-{next(numbers)}",
    )


def chosen(results: list[Object] | None) -> list[list[str]] | None:
    """Return the device names per claim."""
    if results is None:
        return None
    return [[json_types.text(one, "device") for one in json_types.objects(result, "devices", "results")] for result in results]


def first(results: list[Object] | None) -> Object:
    """Return the first device result of the first claim."""
    assert results is not None
    return json_types.objects(results[0], "devices", "results")[0]
