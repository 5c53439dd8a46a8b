"""Which shape each kind has, and decoding of whole objects."""

from drakit.cluster import errors, resources
from drakit.cluster.json_types import Json, Object
from drakit.cluster.resources import Resource
from drakit.cluster.schema import claims, core, devices, pool_requests, shape, taint_rules
from drakit.cluster.schema.shape import Struct

_DRA = resources.RESOURCE_GROUP
SHAPES: dict[tuple[str, str], Struct] = {
    (_DRA, "ResourceSlice"): devices.SLICE,
    (_DRA, "ResourceClaim"): claims.CLAIM,
    (_DRA, "ResourceClaimTemplate"): claims.TEMPLATE,
    (_DRA, "DeviceClass"): claims.CLASS,
    (_DRA, "DeviceTaintRule"): taint_rules.TAINT_RULE,
    (_DRA, "ResourcePoolStatusRequest"): pool_requests.POOL_REQUEST,
    ("", "Pod"): core.POD,
    ("", "Node"): core.NODE,
}
"""By group and kind. All versions of a kind that this server knows have one shape."""


def shape_of(resource: Resource) -> Struct:
    """Return the shape of a kind; kinds without a row are open objects with ObjectMeta."""
    return SHAPES.get((resource.group, resource.kind), core.OTHER)


def decode(resource: Resource, body: Json) -> tuple[Object, list[str]]:
    """Return ``body`` as a new, pruned object of the kind, and the paths of the fields that were dropped.

    Raises BadRequestError where a type is wrong, or apiVersion or kind contradict the resource; missing ones are filled in.
    """
    decoder = shape.Decoder()
    decoded = decoder.decode(shape_of(resource), body, "")
    if not isinstance(decoded, dict):
        raise errors.BadRequestError("body: want an object")
    for name, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if decoded.get(name, wanted) != wanted:
            raise errors.BadRequestError(f"{name}: want {wanted} for this resource, got {decoded[name]}")
    head: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}
    return head | decoded, decoder.unknown
