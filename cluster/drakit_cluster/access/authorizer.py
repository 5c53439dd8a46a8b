"""The authorizer: administrators may do everything, kubelets what their node needs, everybody else what roles grant.

RBAC's rules: does one rule allow one request? Pure. Source: the rule matching of Kubernetes' RBAC authorizer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from drakit_cluster.access import nodes
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.api.storage.query import parse
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Resource


class Authorizer(Protocol):
    """Decides about requests of known users."""

    def allows(self, user: User, wanted: Attributes) -> bool:
        """Return whether ``user`` may do what ``wanted`` describes."""

    def rules_of(self, user: User, namespace: str) -> list[Object]:
        """Return the PolicyRules that hold for ``user`` in a namespace."""


_ALL: tuple[Object, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class KnownUsers:
    """Lets every known user do everything."""

    def allows(self, user: User, wanted: Attributes) -> bool:
        return bool(user.name and wanted.verb)

    def rules_of(self, user: User, namespace: str) -> list[Object]:  # noqa: ARG002 -- the same for all.
        return list(_ALL)


@dataclass(frozen=True, kw_only=True)
class Rbac:
    """Roles and bindings as they are stored now, and the node authorizer for kubelets. Without a matching rule the answer is no."""

    store: Store

    def allows(self, user: User, wanted: Attributes) -> bool:
        if user.is_admin or (user.node and nodes.allows(self.store, user.node, wanted)):
            return True
        return any(allows(rule, wanted) for rule in self._rules(user, wanted.namespace))

    def rules_of(self, user: User, namespace: str) -> list[Object]:
        return list(_ALL) if user.is_admin else list(self._rules(user, namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Object]:
        for binding in self._bindings(CLUSTER_ROLE_BINDING, ""):
            if _binds(binding, user, ""):
                yield from self._role(binding, "")
        for binding in self._bindings(ROLE_BINDING, namespace) if namespace else ():
            if _binds(binding, user, namespace):
                yield from self._role(binding, namespace)

    def _bindings(self, resource: Resource, namespace: str) -> Iterator[Object]:
        entries, _ = self.store.scan(resource)
        yield from (entry.view for entry in entries if entry.key.namespace == namespace)

    def _role(self, binding: Object, namespace: str) -> list[Object]:
        name = json_types.text(binding, "roleRef", "name")
        if json_types.text(binding, "roleRef", "kind") == "Role":
            found = self.store.get(ROLE, Key(namespace, name))
        else:
            found = self.store.get(CLUSTER_ROLE, Key("", name))
        if found is None:
            return []
        return [*json_types.objects(found.view, "rules"), *self._aggregated(found.view)]

    def _aggregated(self, role: Object) -> Iterator[Object]:
        """Yield the rules of the cluster roles that an aggregated role selects by label."""
        for selector in json_types.objects(role, "aggregationRule", "clusterRoleSelectors"):
            wanted = json_types.mapping(selector, "matchLabels")
            chosen = parse(CLUSTER_ROLE, label_selector=",".join(f"{key}={value}" for key, value in wanted.items()))
            for entry in self.store.scan(CLUSTER_ROLE)[0] if wanted else ():
                if entry.view is not role and chosen.matches(entry.view):
                    yield from json_types.objects(entry.view, "rules")


def _binds(binding: Object, user: User, namespace: str) -> bool:
    subjects = json_types.objects(binding, "subjects")
    return any(is_subject(subject, user.name, user.groups, user.account, namespace) for subject in subjects)


ANY = "*"


def allows(rule: Object, wanted: Attributes) -> bool:
    """Return whether a PolicyRule allows the request. Rules only ever add rights."""
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
    """Return whether a binding's subject means this user; a service account without a namespace is one of the binding's own."""
    kind, called = json_types.text(subject, "kind"), json_types.text(subject, "name")
    if kind == "User":
        return called == name
    if kind == "Group":
        return called in groups
    return kind == "ServiceAccount" and account == (json_types.text(subject, "namespace") or namespace, called)
