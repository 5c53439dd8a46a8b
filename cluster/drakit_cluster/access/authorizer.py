"""The authorizer: administrators may do everything, kubelets what their node needs, other users what roles grant.

The functions that match a rule with a request read no stored objects. Source: the rule matching of Kubernetes' RBAC authorizer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from drakit_cluster.access import nodes
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.api.storage.query import parse
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Resource

_ALL: tuple[Object, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Authorizer:
    """Roles and bindings as they are stored now, and the node authorizer for kubelets. A request that no rule matches is denied."""

    store: Store

    def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether ``user`` may do what ``attributes`` describe."""
        if user.is_admin or (user.node and nodes.allows(self.store, user.node, attributes)):
            return True
        return any(allows(rule, attributes) for rule in self._rules(user, attributes.namespace))

    def rules_of(self, user: User, namespace: str) -> list[Object]:
        """Return the PolicyRules that hold for ``user`` in a namespace."""
        return list(_ALL) if user.is_admin else list(self._rules(user, namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Object]:
        for binding in self._bindings(CLUSTER_ROLE_BINDING, ""):
            if _binds(binding, user, ""):
                yield from self._role_rules(binding, "")
        for binding in self._bindings(ROLE_BINDING, namespace) if namespace else ():
            if _binds(binding, user, namespace):
                yield from self._role_rules(binding, namespace)

    def _bindings(self, resource: Resource, namespace: str) -> Iterator[Object]:
        entries, _ = self.store.scan(resource)
        yield from (entry.view for entry in entries if entry.key.namespace == namespace)

    def _role_rules(self, binding: Object, namespace: str) -> list[Object]:
        name = json_types.text(binding, "roleRef", "name")
        if json_types.text(binding, "roleRef", "kind") == "Role":
            role = self.store.get(ROLE, Key(namespace, name))
        else:
            role = self.store.get(CLUSTER_ROLE, Key("", name))
        if role is None:
            return []
        return [*json_types.objects(role.view, "rules"), *self._aggregated(role.view)]

    def _aggregated(self, role: Object) -> Iterator[Object]:
        """Yield the rules of the cluster roles that an aggregated role selects by label."""
        for selector in json_types.objects(role, "aggregationRule", "clusterRoleSelectors"):
            labels = json_types.mapping(selector, "matchLabels")
            query = parse(CLUSTER_ROLE, label_selector=",".join(f"{key}={value}" for key, value in labels.items()))
            for entry in self.store.scan(CLUSTER_ROLE)[0] if labels else ():
                if entry.view is not role and query.matches(entry.view):
                    yield from json_types.objects(entry.view, "rules")


def _binds(binding: Object, user: User, namespace: str) -> bool:
    subjects = json_types.objects(binding, "subjects")
    return any(is_subject(subject, user.name, user.groups, user.account, namespace) for subject in subjects)


def allows(rule: Object, attributes: Attributes) -> bool:
    """Return whether a PolicyRule allows the request. Rules only ever add rights."""
    if not _has(json_types.strings(rule, "verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(_is_path(pattern, attributes.path) for pattern in json_types.strings(rule, "nonResourceURLs"))
    names = json_types.strings(rule, "resourceNames")
    return (
        _has(json_types.strings(rule, "apiGroups"), attributes.group)
        and _is_resource(json_types.strings(rule, "resources"), attributes)
        and (not names or attributes.name in names)
    )


def _has(values: list[str], value: str) -> bool:
    return ANY in values or value in values


def _is_resource(resources: list[str], attributes: Attributes) -> bool:
    if _has(resources, attributes.qualified):
        return True
    return bool(attributes.subresource) and f"{ANY}/{attributes.subresource}" in resources


def _is_path(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern, which is a path, or a prefix followed by ``*``."""
    return pattern == path or (pattern.endswith(ANY) and path.startswith(pattern[:-1]))


def is_subject(subject: Object, name: str, groups: tuple[str, ...], account: tuple[str, str] | None, namespace: str) -> bool:
    """Return whether a binding's subject is this user; a service account without a namespace is in the binding's namespace."""
    kind, subject_name = json_types.text(subject, "kind"), json_types.text(subject, "name")
    if kind == "User":
        return subject_name == name
    if kind == "Group":
        return subject_name in groups
    return kind == "ServiceAccount" and account == (json_types.text(subject, "namespace") or namespace, subject_name)
