"""Which shape each kind has, and decoding of whole objects."""

from drakit.cluster import errors, resources
from drakit.cluster.json_types import Json, Object
from drakit.cluster.resources import Resource
from drakit.cluster.schema import claims, core, devices, shape
from drakit.cluster.schema.shape import Struct

SHAPES: dict[Resource, Struct] = {
    resources.SLICE: devices.SLICE,
    resources.CLAIM: claims.CLAIM,
    resources.CLAIM_TEMPLATE: claims.TEMPLATE,
    resources.CLASS: claims.CLASS,
    resources.POD: core.POD,
    resources.NODE: core.NODE,
}


def shape_of(resource: Resource) -> Struct:
    """Return the shape of a kind; kinds without a row are open objects with ObjectMeta."""
    return SHAPES.get(resource, core.OTHER)


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
