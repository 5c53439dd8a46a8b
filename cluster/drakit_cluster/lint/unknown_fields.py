"""Fixes for fields that an object does not have: misspelt, renamed, or in the wrong place."""

import re
from collections.abc import Sequence

from drakit_cluster.lint import findings, mistake
from drakit_cluster.manifests import Problem
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.schema import api_models, table, unknown_fields
from drakit_cluster.objects.schema.shape import ANY, Shape

_IN_EXACTLY = "write requests[].exactly.{name}, as resource.k8s.io/v1 requires"
_RENAMED = {
    "basic": "resource.k8s.io/v1 has no basic: move its fields to the device",
    "composite": "resource.k8s.io/v1 has no composite: move its fields to the device, and its counters to consumesCounters",
    "boolean": "write bool",
    "integer": "write int",
    "quantity": "write value",
    "deviceMixins": "write spec.mixins.device",
    "counterSetMixins": "write spec.mixins.counterSet",
    "deviceCounterConsumptionMixins": "write spec.mixins.deviceCounterConsumption",
}
_OF_REQUEST = re.compile(r".*\.requests\[\d+\]")
_OF_POD_CLAIM = re.compile(r".*\.resourceClaims\[\d+\]")
_REQUIRED_TERM = re.compile(r".*\.requiredDuringSchedulingIgnoredDuringExecution\[\d+\]")
_WEIGHTED = frozenset({"weight", "podAffinityTerm"})
_CLAIM_SPECS = ((resources.CLAIM, "spec"), (resources.CLAIM_TEMPLATE, "spec.spec"))
_OF_DEVICES = frozenset({"requests", "constraints", "config"})
_MOVED = frozenset({"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"})


def fix(problem: Problem) -> str:
    """Return the fix for an unknown field."""
    parent, _, name = problem.field.rpartition(".")
    if _OF_POD_CLAIM.fullmatch(parent) and name == "source":
        moved = " and ".join(json_types.mapping(mistake.Mistake(problem=problem).written)) or "the name of the claim"
        return f"move {moved} out of source, beside name: Kubernetes 1.31 removed source"
    if (problem.document.resource, parent) in _CLAIM_SPECS and name in _OF_DEVICES:
        return f"move it into {parent}.devices"
    if known_fix := _misplaced(problem, parent, name) or _RENAMED.get(name, ""):
        return known_fix
    names = known_fields(problem, parent)
    if len(names) == 1:
        return f"write {names[0]}, or remove it: kubectl refuses it and the server drops it"
    return f"{findings.suggestion(name, names)}, or remove it: kubectl refuses it and the server drops it"


def _misplaced(problem: Problem, parent: str, name: str) -> str:
    """Return the fix for a field that belongs elsewhere."""
    kind = problem.document.resource
    if _OF_REQUEST.fullmatch(parent) and name in _MOVED:
        return _IN_EXACTLY.format(name=name)
    if kind is resources.CLAIM and problem.field == "spec.spec":
        return "move its fields up to spec (only a ResourceClaimTemplate has spec.spec)"
    if kind is resources.CLAIM_TEMPLATE and problem.field == "spec.devices":
        return "move it to spec.spec: a template's spec contains the spec of a claim"
    if _REQUIRED_TERM.fullmatch(parent) and name in _WEIGHTED:
        return "a required term has no weight: move the fields of podAffinityTerm to the term, or write preferredDuringScheduling..."
    if parent.endswith("nodeSelector"):
        value = json_types.text(mistake.Mistake(problem=problem).holder(), name) or "VALUE"
        expression = f"{{key: {name}, operator: In, values: [{value}]}}"
        return f"a node selector is not a map of labels: write nodeSelectorTerms: [{{matchExpressions: [{expression}]}}]"
    return ""


def known_fields(problem: Problem, path: str) -> Sequence[str]:
    """Return the known fields of the object at a path, sorted."""
    root, shape, model = problem.part or ("", *_described(problem))
    return sorted(unknown_fields.known(shape, model, mistake.steps(path.removeprefix(root))))


def _described(problem: Problem) -> tuple[Shape, str]:
    resource = problem.document.resource
    return (table.shape_of(resource), api_models.name_of(resource)) if resource is not None else (ANY, "")
