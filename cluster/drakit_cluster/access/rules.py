"""RBAC's rules: does one rule allow one request? Pure. Source: the rule matching of Kubernetes' RBAC authorizer."""

from drakit_cluster.access.users import Attributes
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object

ANY = "*"


def allows(rule: Object, wanted: Attributes) -> bool:
    """Say whether a PolicyRule allows the request. Rules only ever add rights."""
    if not _has(json_types.strings(rule, "verbs"), wanted.verb):
        return False
    if wanted.path:
        return any(_is_path(pattern, wanted.path) for pattern in json_types.strings(rule, "nonResourceURLs"))
    names = json_types.strings(rule, "resourceNames")
    return (
        _has(json_types.strings(rule, "apiGroups"), wanted.group)
        and _is_resource(json_types.strings(rule, "resources"), wanted)
        and (not names or wanted.name in names)
    )


def _has(listed: list[str], word: str) -> bool:
    return ANY in listed or word in listed


def _is_resource(listed: list[str], wanted: Attributes) -> bool:
    if _has(listed, wanted.qualified):
        return True
    return bool(wanted.subresource) and f"{ANY}/{wanted.subresource}" in listed


def _is_path(pattern: str, path: str) -> bool:
    """A pattern is a path, or the beginning of one with ``*`` as its last character."""
    return pattern == path or (pattern.endswith(ANY) and path.startswith(pattern[:-1]))


def is_subject(subject: Object, name: str, groups: tuple[str, ...], account: tuple[str, str] | None, namespace: str) -> bool:
    """Say whether a binding's subject means this user; a service account without a namespace is one of the binding's own."""
    kind, called = json_types.text(subject, "kind"), json_types.text(subject, "name")
    if kind == "User":
        return called == name
    if kind == "Group":
        return called in groups
    return kind == "ServiceAccount" and account == (json_types.text(subject, "namespace") or namespace, called)
