"""Rules of Pods and PodGroups, as far as dynamic resource allocation needs them. Source: Kubernetes 1.36's validation."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import workloads
from drakit_cluster.objects.validation import conditions, container_resources, failure, fields, names, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

_MUTABLE = frozenset({"nodeName", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "ephemeralContainers"})
_IMAGE_LISTS = ("containers", "initContainers")
_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_POLICIES = ("basic", "gang")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
MAX_GROUP_CLAIMS = 4


def create(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new pod."""
    spec = json_types.mapping(new, "spec")
    yield from fields.check(workloads.POD, new, "")
    yield from of_spec(spec, "spec")
    if (policy := json_types.text(spec, "restartPolicy")) and policy not in _RESTART_POLICIES:
        yield failure.not_supported("spec.restartPolicy", policy, _RESTART_POLICIES)


def of_spec(spec: Object, path: str) -> Iterator[Failure]:
    """Yield the failures between the fields of a pod spec at ``path``, in a pod or in the template of a workload."""
    yield from _containers(spec, path)
    yield from rules.items("resourceClaims", _pod_claim)(spec, path)
    yield from rules.if_set(rules.text(names.subdomain, "podGroupName"), "schedulingGroup")(spec, path)


def update(new: Object, old: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed pod."""
    yield from create(new, context)
    yield from _changes(json_types.mapping(new, "spec"), json_types.mapping(old, "spec"))


def _containers(spec: Object, path: str) -> Iterator[Failure]:
    if "containers" in spec and not json_types.items(spec, "containers"):
        yield failure.required(f"{path}.containers")
    claim_names = {json_types.text(claim, "name") for claim in json_types.items(spec, "resourceClaims")}
    for group in _IMAGE_LISTS:
        for index, container in enumerate(json_types.items(spec, group)):
            if name := json_types.text(container, "name"):
                yield from names.label(name, f"{path}.{group}[{index}].name")
            where, resources = f"{path}.{group}[{index}].resources", json_types.mapping(container, "resources")
            yield from container_resources.check(resources, where)
            for place, claim in enumerate(json_types.items(resources, "claims")):
                if json_types.text(claim, "name") not in claim_names:
                    field = f"{where}.claims[{place}].name"
                    yield failure.invalid(field, json_types.at(claim, "name"), f"must be one of {path}.resourceClaims")


def _pod_claim(claim: Json, path: str) -> Iterator[Failure]:
    if name := json_types.text(claim, "name"):
        yield from names.label(name, f"{path}.name")
    yield from _claim(claim, path)


def _claim(claim: Json, path: str) -> Iterator[Failure]:
    named = {source: name for source in _SOURCES if (name := json_types.text(claim, source))}
    for source, name in named.items():
        yield from names.subdomain(name, f"{path}.{source}")
    if len(named) != 1:
        yield failure.invalid(path, claim, f"exactly one of {' or '.join(_SOURCES)} is required")


def _changes(spec: Object, old: Object) -> Iterator[Failure]:
    """A pod is bound once; beyond that only a few fields and the containers' images may change."""
    if json_types.text(old, "nodeName"):
        yield from failure.unchanged("spec.nodeName", spec.get("nodeName"), old.get("nodeName"))
    if _fixed(spec) != _fixed(old):
        detail = f"pod updates may not change fields other than containers[*].image and {', '.join(sorted(_MUTABLE))}"
        yield failure.forbidden("spec", detail)


def _fixed(spec: Object) -> Object:
    fixed: Object = {name: value for name, value in spec.items() if name not in _MUTABLE}
    for group in _IMAGE_LISTS:
        containers = json_types.objects(spec, group)
        fixed[group] = [{key: value for key, value in container.items() if key != "image"} for container in containers]
    return fixed


def create_group(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new PodGroup."""
    spec = json_types.mapping(new, "spec")
    yield from fields.check(workloads.POD_GROUP, new, "")
    if "schedulingPolicy" in spec:
        yield from _policy(spec["schedulingPolicy"], "spec.schedulingPolicy")
    yield from rules.items("resourceClaims", _group_claim, limit=MAX_GROUP_CLAIMS)(spec, "spec")


def update_group(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of each changed field of a PodGroup's spec."""
    spec, old_spec = json_types.mapping(new, "spec"), json_types.mapping(old, "spec")
    for name in sorted({*spec, *old_spec}):
        yield from failure.unchanged(f"spec.{name}", spec.get(name), old_spec.get(name))


def update_group_status(new: Object, _old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a PodGroup's status."""
    claims = {json_types.text(claim, "name") for claim in json_types.items(new, "spec", "resourceClaims")}

    def check(status: Json, path: str) -> Iterator[Failure]:
        if (name := json_types.text(status, "name")) not in claims:
            yield failure.invalid(f"{path}.name", name, "must be the name of an entry of spec.resourceClaims")
        yield from rules.if_set(rules.of_text(names.subdomain), "resourceClaimName")(status, path)

    yield from conditions.check(new.get("status"), "status")
    yield from rules.items("resourceClaimStatuses", check, limit=MAX_GROUP_CLAIMS, key=rules.by("name"))(new.get("status"), "status")


def _policy(policy: Json, path: str) -> Iterator[Failure]:
    chosen = [name for name in _POLICIES if json_types.at(policy, name) is not None]
    if len(chosen) != 1:
        yield failure.invalid(path, policy, f"exactly one of {' or '.join(_POLICIES)} is required")
    if "gang" in chosen:
        yield from rules.number(1, "must be 1 or more", "minCount")(json_types.at(policy, "gang"), f"{path}.gang")


def _group_claim(claim: Json, path: str) -> Iterator[Failure]:
    yield from names.label(json_types.text(claim, "name"), f"{path}.name")
    yield from _claim(claim, path)
