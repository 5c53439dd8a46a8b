"""The writes that a policy or a webhook applies to: rules of operations and resources, and label selectors."""

from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.api.reviewing import Operation
from drakit_cluster.objects import json_types, labels, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

_ANY = "*"
EXEMPT = frozenset({resources.ADMISSION_POLICY, resources.ADMISSION_BINDING, resources.WEBHOOKS})
"""Writes of these kinds are exempt, so that a wrong policy or webhook can always be removed."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A write as selectors see it. ``namespace`` is the namespace object, None for cluster-scoped objects."""

    operation: Operation
    resource: Resource
    subresource: str
    name: str
    new: Object | None
    old: Object | None
    namespace: Object | None


def matches(constraints: Object, rules: str, subject: Subject) -> bool:
    """Return whether ``constraints`` match this write. ``rules`` names the field of the rules. Without rules every write matches."""
    if subject.resource in EXEMPT:
        return False
    listed = json_types.objects(constraints, rules)
    return (
        (not listed or _any(listed, constraints, subject))
        and not _any(json_types.objects(constraints, "excludeResourceRules"), constraints, subject)
        and _namespace(json_types.mapping(constraints, "namespaceSelector"), subject)
        and _object(json_types.mapping(constraints, "objectSelector"), subject)
    )


def _any(rules: Iterable[Object], constraints: Object, subject: Subject) -> bool:
    exact = json_types.text(constraints, "matchPolicy") == "Exact"
    return any(_rule(rule, subject, exact=exact) for rule in rules)


def _rule(rule: Object, subject: Subject, *, exact: bool) -> bool:
    resource = subject.resource
    names = json_types.strings(rule, "resourceNames")
    return (
        _has(rule, "operations", subject.operation)
        and _has(rule, "apiGroups", resource.group)
        and any(_has(rule, "apiVersions", version) for version in _versions(resource, exact=exact))
        and _resource(json_types.strings(rule, "resources"), resource.plural, subject.subresource)
        and (not names or subject.name in names)
        and json_types.text(rule, "scope") in ("", _ANY, "Namespaced" if resource.namespaced else "Cluster")
    )


def _versions(resource: Resource, *, exact: bool) -> list[str]:
    """Return the versions that a rule may name: the request's and, unless ``exact``, every other served version of the kind."""
    if exact:
        return [resource.version]
    return [served.version for served in resources.SERVED if (served.group, served.kind) == (resource.group, resource.kind)]


def _has(rule: Object, field: str, word: str) -> bool:
    listed = json_types.strings(rule, field)
    return _ANY in listed or word in listed


def _resource(listed: list[str], plural: str, subresource: str) -> bool:
    if subresource:
        return any(pattern in listed for pattern in (f"{plural}/{subresource}", f"{plural}/*", f"*/{subresource}", "*/*"))
    return plural in listed or _ANY in listed or "*/*" in listed


def _namespace(selector: Object, subject: Subject) -> bool:
    if not selector or (subject.namespace is None and subject.resource is not resources.NAMESPACE):
        return True
    labelled = subject.namespace if subject.namespace is not None else subject.new or subject.old or {}
    return labels.selects(selector, labelled)


def _object(selector: Object, subject: Subject) -> bool:
    return not selector or any(labels.selects(selector, obj) for obj in (subject.new, subject.old) if obj is not None)
