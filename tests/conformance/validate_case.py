"""Codec of the recorded validations: a case becomes objects and gates, failures become pairs of type and field."""

import dataclasses

from drakit_cluster import cel
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import decoding, devices
from drakit_cluster.objects.schema import table as shapes
from drakit_cluster.objects.validation import context, table
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.slices import devices as device_rules

NAMESPACED = ("ResourceClaim", "ResourceClaimTemplate")
CAPACITY_PATH = "spec.devices.capacity"
"""Where the recordings say that a capacity without its slice is."""


def answer(case: Object) -> Object:
    """Return the failures of one case in the recorded form.

    The recordings are of the rules alone: fields of gates that are off are still there, and defaults are not filled in.
    """
    found = [{"type": one.type.removeprefix("FieldValue"), "field": one.field} for one in failures(case)]
    return {"failures": json_types.from_objects({**one} for one in found)}


def failures(case: Object) -> list[Failure]:
    """Return what the rules say of a case."""
    if json_types.text(case, "objectKind") == "DeviceCapacity":
        capacity = decoding.Decoder().decode(devices.CAPACITY, case.get("object"), "")
        return list(device_rules.shared_capacity(capacity, CAPACITY_PATH))
    resource, named = resource_of(case), gates(case)
    rules = context.Context(gates=named, selectors=cel.Selectors(named))
    operation = json_types.text(case, "operation")
    new, _ = shapes.decode(resource, case.get("object"))
    old = None if operation == "create" else before(resource, case)
    return table.check(resource, new, old, rules, subresource="status" if operation == "statusUpdate" else "")


def before(resource: Resource, case: Object) -> Object:
    """Return the stored object of an update."""
    return shapes.decode(resource, case.get("oldObject"))[0]


def resource_of(case: Object) -> Resource:
    """Return the resource of a case, in the case's own version."""
    kind = json_types.text(case, "objectKind")
    group, _, version = json_types.text(case, "apiVersion").partition("/")
    known = next((one for one in resources.ALL if (one.group, one.kind) == (group, kind)), None)
    if known is not None:
        return dataclasses.replace(known, version=version)
    plural = f"{kind.lower()}s"
    return Resource(group=group, version=version, kind=kind, plural=plural, singular=kind.lower(), namespaced=kind in NAMESPACED)


def gates(case: Object) -> FeatureGates:
    """Return the gates of a case, which Kubernetes 1.36 decided; those that the case does not name keep their defaults there."""
    recorded: Json = case.get("featureGates")
    named = {gate: recorded[gate.value] is True for gate in Gate if isinstance(recorded, dict) and gate.value in recorded}
    on = {gate for gate, state in named.items() if state}
    default = FeatureGates.of({}, "1.36")
    return FeatureGates(version=default.version, enabled=(default.enabled - set(named)) | on)
