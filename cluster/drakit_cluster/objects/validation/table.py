"""Which rules each kind has, and when: on creation, on update, and on update of its status."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.validation import fields, metadata, names, pods
from drakit_cluster.objects.validation.claims import claims, classes
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.rules import NameRule
from drakit_cluster.objects.validation.slices import pool_requests, slices, taints

Creation: TypeAlias = Callable[[Object, Context], Iterable[Failure]]
Change: TypeAlias = Callable[[Object, Object, Context], Iterable[Failure]]


def _nothing(_new: Object, _old: Object, _context: Context) -> Iterable[Failure]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a kind between its fields. With ``full_metadata``, updates check all metadata again."""

    create: Creation
    update: Change
    update_status: Change = _nothing
    full_metadata: bool = False


_DRA = resources.RESOURCE_GROUP
_RULES: dict[tuple[str, str], Rules] = {
    (_DRA, "ResourceSlice"): Rules(create=slices.create, update=slices.update),
    (_DRA, "ResourceClaim"): Rules(create=claims.create, update=claims.update, update_status=claims.update_status, full_metadata=True),
    (_DRA, "ResourceClaimTemplate"): Rules(create=claims.create_template, update=claims.update_template),
    (_DRA, "DeviceClass"): Rules(create=classes.create, update=classes.update, full_metadata=True),
    (_DRA, "DeviceTaintRule"): Rules(create=taints.create, update=taints.update, update_status=taints.update_status),
    (_DRA, "ResourcePoolStatusRequest"): Rules(
        create=pool_requests.create, update=pool_requests.update, update_status=pool_requests.update_status
    ),
    ("", "Pod"): Rules(create=pods.create, update=pods.update, full_metadata=True),
    (resources.SCHEDULING_GROUP, "PodGroup"): Rules(
        create=pods.create_group, update=pods.update_group, update_status=pods.update_group_status
    ),
}
_NAMINGS: dict[tuple[str, str], NameRule] = {("", "Namespace"): names.label}
_GROUP_NAMINGS: dict[str, NameRule] = {"rbac.authorization.k8s.io": names.path_segment}


def check(resource: Resource, new: Object, old: Object | None, context: Context, *, subresource: str = "") -> list[Failure]:
    """Return every failure of ``new``, already decoded; ``old`` is the stored object of an update."""
    rules = _RULES.get((resource.group, resource.kind)) or _core(resource)
    if old is None:
        return [*_metadata(resource, new), *rules.create(new, context)]
    if subresource:
        return [*metadata.update(new, old), *rules.update_status(new, old, context)]
    metadata_failures = _metadata(resource, new) if rules.full_metadata else ()
    return [*dict.fromkeys(itertools.chain(metadata_failures, metadata.update(new, old))), *rules.update(new, old, context)]


def _metadata(resource: Resource, new: Object) -> Iterable[Failure]:
    group_naming = _GROUP_NAMINGS.get(resource.group, names.subdomain)
    naming = _NAMINGS.get((resource.group, resource.kind), group_naming)
    return metadata.create(new, namespaced=resource.namespaced, naming=naming)


def _core(resource: Resource) -> Rules:
    """Return the rules of a kind without rules of its own, which follow from its shape."""
    shape = table.shape_of(resource)
    return Rules(
        create=lambda new, _context: fields.check(shape, new, ""),
        update=lambda new, _old, _context: fields.check(shape, new, ""),
        full_metadata=True,
    )
