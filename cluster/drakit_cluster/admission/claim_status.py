"""The rights that a writer of a claim needs beyond RBAC on the claim: for parts of the status, and a namespace that allows admin access.

Changes of allocation and reservations need ``resourceclaims/binding``. Changes of a driver's devices need ``resourceclaims/driver`` with the
driver as name. The prefix of the verb limits the node: ``associated-node:`` is for the token of a pod on the node that the claim is
allocated to, ``arbitrary-node:`` for all. The devices of a claim without allocation are not checked. Admin access is checked when a claim
or a template is created, and when an allocation gets its first result with it. Source: Kubernetes 1.36, gate
DRAResourceClaimGranularStatusAuthorization for the status.
"""

from collections.abc import Iterator
from dataclasses import replace

from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.users import Attributes, User, denial
from drakit_cluster.api.reviewing import Change, Operation
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema.claims import DEVICE_STATUS_KEYS
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

ASSOCIATED = "associated-node:"
ARBITRARY = "arbitrary-node:"


def failures(change: Change, user: User, verb: str, authorizer: Authorizer) -> Iterator[Failure]:
    """Yield the failures of changes that ``user`` may not make in a claim's status. ``verb`` is update or patch."""
    if change.resource is not resources.CLAIM or change.subresource != "status" or change.before is None or change.new is None:
        return
    new, old = json_types.mapping(change.new, "status"), json_types.mapping(change.before.view, "status")
    attributes = Attributes(verb=verb, group=resources.RESOURCE_GROUP, resource=resources.CLAIM.plural)
    if any((new.get(field) or None) != (old.get(field) or None) for field in ("allocation", "reservedFor")):
        yield from _binding(user, replace(attributes, subresource="binding"), authorizer)
    if new.get("allocation") is not None:
        verbs = _verbs(user, verb, allocated_node(new["allocation"]))
        for driver in sorted(changed_drivers(new, old)):
            driver_attributes = replace(attributes, subresource="driver", namespace=change.key.namespace, name=driver)
            yield from _driver(user, driver_attributes, verbs, authorizer)


def _binding(user: User, attributes: Attributes, authorizer: Authorizer) -> Iterator[Failure]:
    if not authorizer.allows(user, attributes):
        what = f'resource="resourceclaims/binding", verb="{attributes.verb}" permission'
        yield failure.forbidden(
            "status", f"changing status.allocation or status.reservedFor requires {what}: {_forbidden(user, attributes)}"
        )


def _driver(user: User, attributes: Attributes, verbs: list[str], authorizer: Authorizer) -> Iterator[Failure]:
    candidates = [replace(attributes, verb=verb) for verb in verbs]
    if not any(authorizer.allows(user, candidate) for candidate in candidates):
        what = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'
        yield failure.forbidden("status.devices", f"changing status.devices requires {what}: {_forbidden(user, candidates[0])}")


def _forbidden(user: User, attributes: Attributes) -> str:
    named = f' "{attributes.name}"' if attributes.name else ""
    return f"resourceclaims.{resources.RESOURCE_GROUP}{named} is forbidden: {denial(user, attributes)}"


def _verbs(user: User, verb: str, node: str) -> list[str]:
    return [*([ASSOCIATED + verb] if node and user.pod_node == node else []), ARBITRARY + verb]


def allocated_node(allocation: Json) -> str:
    """Return the node that an allocation is bound to, or ``""``. Its selector must be one term with one field, the node's name."""
    terms = json_types.items(allocation, "nodeSelector", "nodeSelectorTerms")
    if len(terms) != 1 or json_types.items(terms[0], "matchExpressions"):
        return ""
    fields = json_types.objects(terms[0], "matchFields")
    values = json_types.strings(fields[0], "values") if len(fields) == 1 else []
    named = len(values) == 1 and (fields[0].get("key"), fields[0].get("operator")) == ("metadata.name", "In")
    return values[0] if named else ""


def changed_drivers(new: Object, old: Object) -> set[str]:
    """Return the drivers whose device statuses differ."""
    before, after = _devices(old), _devices(new)
    return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _devices(status: Object) -> dict[tuple[str, ...], Object]:
    return {tuple(json_types.text(device, key) for key in DEVICE_STATUS_KEYS): device for device in json_types.objects(status, "devices")}


ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_ADMIN_DETAIL = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"


def admin_failures(change: Change, store: Store) -> Iterator[Failure]:
    """Yield the failure of a write that requests or grants admin access in a namespace that does not allow it."""
    field = _admin_field(change)
    if field and not _allows_admin(store, change.key.namespace):
        yield failure.forbidden(field, _ADMIN_DETAIL)


def _allows_admin(store: Store, namespace: str) -> bool:
    stored = store.get(resources.NAMESPACE, Key("", namespace))
    return stored is not None and json_types.text(stored.view, "metadata", "labels", ADMIN_LABEL) == "true"


def _admin_field(change: Change) -> str:
    """Return the field by which this write requests or grants admin access, or ``""``."""
    new = change.new or {}
    if change.operation is Operation.CREATE and change.resource is resources.CLAIM:
        return _admin_request(json_types.at(new, "spec", "devices"))
    if change.operation is Operation.CREATE and change.resource is resources.CLAIM_TEMPLATE:
        return _admin_request(json_types.at(new, "spec", "spec", "devices"))
    if (
        change.resource is resources.CLAIM
        and change.subresource == "status"
        and not _admin_result(change.before.view if change.before else {})
    ):
        return _admin_result(new)
    return ""


def _admin_request(devices: Json) -> str:
    for index, request in enumerate(json_types.items(devices, "requests")):
        if json_types.at(request, "exactly", "adminAccess") is True:
            return f"spec.devices.requests[{index}].adminAccess"
    return ""


def _admin_result(claim: Object) -> str:
    for index, result in enumerate(json_types.items(claim, "status", "allocation", "devices", "results")):
        if json_types.at(result, "adminAccess") is True:
            return f"status.allocation.devices.results[{index}].adminAccess"
    return ""
