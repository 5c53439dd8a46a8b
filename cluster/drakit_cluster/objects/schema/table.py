"""Which shape each kind has, and decoding of whole objects."""

import functools
from dataclasses import replace

from drakit_cluster.objects import errors, features, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import access, claims, decoding, devices, workloads
from drakit_cluster.objects.schema.shape import ListOf, MapOf, Shape, Struct

_DRA = resources.RESOURCE_GROUP
SHAPES: dict[tuple[str, str], Struct] = {
    (_DRA, "ResourceSlice"): devices.SLICE,
    (_DRA, "ResourceClaim"): claims.CLAIM,
    (_DRA, "ResourceClaimTemplate"): claims.TEMPLATE,
    (_DRA, "DeviceClass"): claims.CLASS,
    (_DRA, "DeviceTaintRule"): devices.TAINT_RULE,
    (_DRA, "ResourcePoolStatusRequest"): devices.POOL_REQUEST,
    ("", "Pod"): workloads.POD,
    ("", "Node"): workloads.NODE,
    ("", "Secret"): workloads.SECRET,
    ("", "ConfigMap"): workloads.CONFIG_MAP,
    ("", "ServiceAccount"): workloads.SERVICE_ACCOUNT,
    ("apps", "DaemonSet"): workloads.DAEMON_SET,
    ("apps", "Deployment"): workloads.DEPLOYMENT,
    (resources.SCHEDULING_GROUP, "PodGroup"): workloads.POD_GROUP,
    ("apps", "ReplicaSet"): workloads.REPLICA_SET,
    ("apps", "StatefulSet"): workloads.STATEFUL_SET,
    ("apps", "ControllerRevision"): workloads.CONTROLLER_REVISION,
    ("batch", "Job"): workloads.JOB,
    ("batch", "CronJob"): workloads.CRON_JOB,
    ("", "Service"): workloads.SERVICE,
    ("coordination.k8s.io", "Lease"): workloads.LEASE,
    (resources.RBAC_GROUP, "Role"): access.ROLE,
    (resources.RBAC_GROUP, "ClusterRole"): access.CLUSTER_ROLE,
    (resources.RBAC_GROUP, "RoleBinding"): access.ROLE_BINDING,
    (resources.RBAC_GROUP, "ClusterRoleBinding"): access.ROLE_BINDING,
    (resources.ADMISSION_GROUP, "ValidatingAdmissionPolicy"): access.POLICY,
    (resources.ADMISSION_GROUP, "ValidatingAdmissionPolicyBinding"): access.POLICY_BINDING,
    (resources.ADMISSION_GROUP, "ValidatingWebhookConfiguration"): access.WEBHOOKS,
    ("authentication.k8s.io", "TokenRequest"): access.TOKEN_REQUEST,
    ("authentication.k8s.io", "SelfSubjectReview"): access.SELF_REVIEW,
    ("authentication.k8s.io", "TokenReview"): access.TOKEN_REVIEW,
    ("authorization.k8s.io", "SubjectAccessReview"): access.ACCESS_REVIEW,
    ("authorization.k8s.io", "SelfSubjectAccessReview"): access.SELF_ACCESS_REVIEW,
    ("authorization.k8s.io", "SelfSubjectRulesReview"): access.SELF_RULES_REVIEW,
}
"""By group and kind, with the fields of every Kubernetes version. All API versions of a kind that this server knows have one shape."""


@functools.lru_cache(maxsize=256)
def shape_of(resource: Resource, gates: FeatureGates | None = None) -> Struct:
    """Return the shape of a kind; kinds without a row are open objects with ObjectMeta.

    With ``gates``, it has only the fields of their version.
    """
    shape = SHAPES.get((resource.group, resource.kind), workloads.OTHER)
    for _, steps in features.absent_fields(resources.stored(resource), gates) if gates is not None else ():
        pruned = _without(shape, steps)
        shape = pruned if isinstance(pruned, Struct) else shape
    return shape


def _without(shape: Shape, steps: tuple[str, ...]) -> Shape:
    """Return a shape without one field."""
    step, rest = steps[0], steps[1:]
    if isinstance(shape, ListOf):
        return replace(shape, item=_without(shape.item, rest))
    if isinstance(shape, MapOf):
        return replace(shape, value=_without(shape.value, rest))
    if not isinstance(shape, Struct):
        return shape
    kept = {name: _without(field, rest) if name == step else field for name, field in shape.fields.items() if rest or name != step}
    return replace(shape, fields=kept)


def decode(resource: Resource, body: Json, gates: FeatureGates | None = None) -> tuple[Object, list[str]]:
    """Return ``body`` as a new, pruned object of the kind, and the paths of the fields that were dropped.

    With ``gates``, fields that their version does not have are dropped too. Raises BadRequestError where a type is wrong, or apiVersion or kind
    contradict the resource; missing ones are filled in.
    """
    decoder = decoding.Decoder()
    decoded = decoder.decode(shape_of(resource, gates), body, "")
    if not isinstance(decoded, dict):
        raise errors.BadRequestError("body: want an object")
    for name, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if decoded.get(name, expected) != expected:
            raise errors.BadRequestError(f"{name}: want {expected} for this resource, got {decoded[name]}")
    head: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}
    return head | decoded, decoder.unknown
