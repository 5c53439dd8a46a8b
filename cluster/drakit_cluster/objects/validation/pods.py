"""Rules of Pods, as far as dynamic resource allocation needs them. Source: Kubernetes 1.36's validation."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import workloads
from drakit_cluster.objects.validation import failure, fields, names, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

_MUTABLE = frozenset({"nodeName", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "ephemeralContainers"})
_IMAGE_LISTS = ("containers", "initContainers")
_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def create(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new pod."""
    spec = json_types.mapping(new, "spec")
    yield from fields.check(workloads.POD, new, "")
    yield from _containers(spec)
    yield from rules.items("resourceClaims", _claim)(spec, "spec")


def update(new: Object, old: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed pod."""
    yield from create(new, context)
    yield from _changes(json_types.mapping(new, "spec"), json_types.mapping(old, "spec"))


def _containers(spec: Object) -> Iterator[Failure]:
    if "containers" in spec and not json_types.items(spec, "containers"):
        yield failure.required("spec.containers")
    claim_names = {json_types.text(claim, "name") for claim in json_types.items(spec, "resourceClaims")}
    for group in _IMAGE_LISTS:
        for index, container in enumerate(json_types.items(spec, group)):
            for place, claim in enumerate(json_types.items(container, "resources", "claims")):
                if json_types.text(claim, "name") not in claim_names:
                    field = f"spec.{group}[{index}].resources.claims[{place}].name"
                    yield failure.invalid(field, json_types.at(claim, "name"), "must be one of spec.resourceClaims")


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
