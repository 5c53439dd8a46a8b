"""Answers conformance cases: one JSON document a line in, one a line out, in order.

Only a codec: every decision is made by ``drakit_cluster``. A case whose kind has no owner yet, and any error, is answered as
``{"crash": "..."}``.
"""

import importlib
import json
import pathlib
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "driver"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cluster"))

from conformance import validate_case
from drakit_cluster.objects import capacity, devices, json_types, quantity, taints
from drakit_cluster.objects.devices import DeviceId, DeviceView, view_of
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.scheduling.allocator import allocator, known_errors, state

GATES = {
    "AdminAccess": Gate.ADMIN_ACCESS,
    "ConsumableCapacity": Gate.CONSUMABLE_CAPACITY,
    "DeviceBindingAndStatus": Gate.BINDING_CONDITIONS,
    "DeviceTaints": Gate.DEVICE_TAINTS,
    "ListTypeAttributes": Gate.LIST_TYPE_ATTRIBUTES,
    "PartitionableDevices": Gate.PARTITIONABLE_DEVICES,
    "PrioritizedList": Gate.PRIORITIZED_LIST,
}
"""The recorded allocator's feature names."""


class NotSupportedError(Exception):
    """A kind of case that the project does not answer yet."""


def answer(case: Object) -> Object:
    """Return the outcome of one case in the recorded form."""
    kind = json_types.text(case, "kind")
    if kind not in ANSWERS:
        raise NotSupportedError(f"no decisions for cases of kind {kind!r} yet")
    return ANSWERS[kind](case)


def gates(case: Object) -> FeatureGates:
    """Return the gates of a case, which Kubernetes 1.36 decided; one that the case does not name keeps its default there."""
    named = json_types.mapping(case, "featureGates")
    known = {name: gate for name, gate in GATES.items() if name in named}
    on = {gate for name, gate in known.items() if named[name] is True}
    default = FeatureGates.of({"DRADeviceTaintRules": True}, "1.36")
    return FeatureGates(version=default.version, enabled=(default.enabled - set(known.values())) | on)


def selectors(features: FeatureGates) -> devices.SelectorPort:
    """Return the CEL selectors, imported on first use so that the other kinds need none of their libraries."""
    module = importlib.import_module("drakit_cluster.cel")
    port: devices.SelectorPort = module.Selectors(features)
    return port


def allocate(case: Object) -> Object:
    """Allocate all claims of the case together; ``asKubernetes`` is the version whose errors are repeated."""
    features, errors = gates(case), known_errors.of_version(json_types.text(case, "asKubernetes"))
    classes = {json_types.text(item, "metadata", "name"): item for item in json_types.objects(case, "classes")}
    share_ids = iter(f"00000000-0000-4000-8000-{number:012}" for number in range(10**12))
    try:
        results = allocator.Allocator(json_types.objects(case, "slices"), classes, selectors(features), features, errors).allocate(
            claims=json_types.objects(case, "claims"),
            node=json_types.mapping(case, "node"),
            allocated=allocated(case),
            new_share_id=lambda: next(share_ids),
        )
    except devices.AllocationError as error:
        return {"outcome": "error", "error": str(error)}
    if results is None:
        return {"outcome": "none"}
    return {"outcome": "allocated", "results": json_types.from_objects(results)}


def allocated(case: Object) -> state.AllocatedState:
    """Return what the case says is in use."""
    used = state.AllocatedState()
    for item in json_types.objects(case, "allocated", "devices"):
        used.hold(device_id(item))
    for item in json_types.objects(case, "allocated", "sharedDeviceIDs"):
        used.share(device_id(item), {})
    for item in json_types.objects(case, "allocated", "capacity"):
        used.consume(device_id(item), capacity.decode_amounts(item.get("capacity")))
    return used


def device_id(item: Object) -> DeviceId:
    """Return the device that an entry names."""
    return DeviceId(json_types.text(item, "driver"), json_types.text(item, "pool"), json_types.text(item, "device"))


def cel(case: Object) -> Object:
    """Compile and evaluate one device selector."""
    module = importlib.import_module("drakit_cluster.cel")
    compiler = module.Selectors(gates(case))
    kind = module.EnvType.NEW if json_types.text(case, "envType").startswith(module.EnvType.NEW.value) else module.EnvType.STORED
    try:
        compiled = compiler.compile(json_types.text(case, "expression"), kind)
        return {"outcome": "match", "match": compiler.verdict(compiled, device_view(json_types.mapping(case, "device")))}
    except module.CompileError as error:
        return {"outcome": "compileError", "error": str(error)}
    except module.RunError as error:
        return {"outcome": "matchError", "error": str(error)}


def device_view(device: Object) -> DeviceView:
    """Return the view of a case's device."""
    return view_of(json_types.text(device, "driver"), device)


def decide_capacity(case: Object) -> Object:
    """Run one operation of capacity arithmetic."""
    return {"value": OPERATIONS[json_types.text(case, "operation")](case)}


def consume(case: Object) -> Json:
    """Say how much a request takes, in whole units rounded up, as it was recorded."""
    return capacity.consumed(requested(case), capacity.decode_capacity(case.get("capacity"))).units


def violates(case: Object) -> Json:
    """Say whether the policy forbids the amount."""
    amount = requested(case)
    return amount is not None and capacity.violates(amount, capacity.decode_policy(case.get("requestPolicy")))


def requested(case: Object) -> Quantity | None:
    """Return the requested amount, None where the case has none."""
    value = case.get("requested")
    return None if value is None else quantity.parse(value)


def fits(case: Object) -> Json:
    """Say whether the requirements fit beside what is taken."""
    taken = (capacity.decode_amounts(json_types.at(case, "extra", name)) for name in ("alreadyConsumed", "allocating"))
    return capacity.fits(requirements(case), capacity.decode_capacities(case.get("capacities")), *taken)


def consume_all(case: Object) -> Json:
    """Say how much the requirements take of each capacity."""
    amounts = capacity.consume_all(requirements(case), capacity.decode_capacities(case.get("capacities")))
    return {name: amount.units for name, amount in amounts.items()}


def requirements(case: Object) -> dict[str, Quantity]:
    """Return the case's capacity requests."""
    return capacity.decode_amounts(json_types.at(case, "requirements", "requests"))


def toleration(case: Object) -> Object:
    """Say whether the toleration covers the taint."""
    return {"tolerated": taints.tolerates(case.get("toleration"), case.get("taint"))}


OPERATIONS: dict[str, Callable[[Object], Json]] = {
    "consume": consume,
    "violates": violates,
    "fits": fits,
    "consumeAll": consume_all,
}
ANSWERS: dict[str, Callable[[Object], Object]] = {
    "allocate": allocate,
    "capacity": decide_capacity,
    "cel": cel,
    "toleration": toleration,
    "validate": validate_case.answer,
}


def main() -> None:
    """Answer standard input on standard output."""
    for line in sys.stdin:
        try:
            case = json_types.parse(line)
            result = answer(case if isinstance(case, dict) else {})
        except Exception as error:  # noqa: BLE001 - one broken case must not take the others with it.
            result = {"crash": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
