"""Which rules each kind has."""

from drakit.cluster import resources
from drakit.cluster.features import FeatureGates
from drakit.cluster.json_types import Object
from drakit.cluster.resources import Resource
from drakit.cluster.schema import table
from drakit.cluster.validation import claims, classes, fields, metadata, pods, slices
from drakit.cluster.validation.failure import Failure


def check(resource: Resource, new: Object, old: Object | None, gates: FeatureGates) -> list[Failure]:
    """Return every failure of ``new``, already decoded; ``old`` is the stored object of an update."""
    single = list(fields.check(table.shape_of(resource), new, ""))
    return metadata.check(new, old) + single + _between_fields(resource, new, old, gates)


def _between_fields(resource: Resource, new: Object, old: Object | None, gates: FeatureGates) -> list[Failure]:
    if resource is resources.SLICE:
        return slices.check(new, old, gates)
    if resource is resources.CLAIM:
        return claims.check(new, old)
    if resource is resources.CLAIM_TEMPLATE:
        return claims.check_template(new, old)
    if resource is resources.CLASS:
        return classes.check(new)
    if resource is resources.POD:
        return pods.check(new, old)
    return []
