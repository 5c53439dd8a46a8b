"""Rules of Pods, as far as dynamic resource allocation needs them. Source: Kubernetes 1.36's validation."""

from collections.abc import Iterator

from drakit.cluster import json_types
from drakit.cluster.json_types import Object
from drakit.cluster.validation import failure, fields
from drakit.cluster.validation.failure import Failure

_MUTABLE = frozenset({"nodeName", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "ephemeralContainers"})
_IMAGE_LISTS = ("containers", "initContainers")


def check(new: Object, old: Object | None) -> list[Failure]:
    """Return what is wrong with a pod, created (``old`` is None) or updated."""
    spec = json_types.mapping(new, "spec")
    changes = [] if old is None else _changes(spec, json_types.mapping(old, "spec"))
    return fields.chain(_containers(spec), _claims(spec), changes)


def _containers(spec: Object) -> Iterator[Failure]:
    if not json_types.items(spec, "containers"):
        yield failure.required("spec.containers")
    known = {json_types.text(claim, "name") for claim in json_types.items(spec, "resourceClaims")}
    for group in _IMAGE_LISTS:
        for index, container in enumerate(json_types.items(spec, group)):
            for place, claim in enumerate(json_types.items(container, "resources", "claims")):
                if json_types.text(claim, "name") not in known:
                    field = f"spec.{group}[{index}].resources.claims[{place}].name"
                    yield failure.invalid(field, json_types.at(claim, "name"), "must be one of spec.resourceClaims")


def _claims(spec: Object) -> Iterator[Failure]:
    sources = ("resourceClaimName", "resourceClaimTemplateName")
    for index, claim in enumerate(json_types.items(spec, "resourceClaims")):
        if sum(bool(json_types.text(claim, source)) for source in sources) != 1:
            field = f"spec.resourceClaims[{index}]"
            yield failure.invalid(field, claim, f"exactly one of {' or '.join(sources)} is required")


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
        fixed[group] = [{key: value for key, value in one.items() if key != "image"} for one in containers]
    return fixed
