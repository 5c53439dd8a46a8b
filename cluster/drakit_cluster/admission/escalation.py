"""Nobody gives rights that they do not hold: for roles that are written and roles that are bound.

The verb ``escalate`` on a role, or ``bind`` for a binding, lifts this. Source: Kubernetes' RBAC storage.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from drakit_cluster.access import authorizer
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.api.reviewing import Change
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object

_ROLES = (resources.ROLE, resources.CLUSTER_ROLE)
_BINDINGS = (resources.ROLE_BINDING, resources.CLUSTER_ROLE_BINDING)


def missing(change: Change, user: User, authorizer: Authorizer, store: Store) -> str:
    """Return what the user tries to give without holding it, as a sentence; ``""`` where nothing is."""
    if change.new is None or user.is_admin:
        return ""
    if change.resource in _ROLES:
        return _missing_for_role(change, change.new, user, authorizer)
    if change.resource in _BINDINGS:
        return _missing_for_binding(change, change.new, user, authorizer, store)
    return ""


def _missing_for_role(change: Change, role: Object, user: User, authorizer: Authorizer) -> str:
    asked = Attributes(
        verb="escalate", group=resources.RBAC_GROUP, resource=change.resource.plural, namespace=change.key.namespace, name=change.key.name
    )
    unchanged = change.before is not None and all(change.before.view.get(one) == role.get(one) for one in ("rules", "aggregationRule"))
    if unchanged or authorizer.allows(user, asked):
        return ""
    given = json_types.objects(role, "rules")
    if role.get("aggregationRule") is not None:
        given = [*given, {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    return _sentence(user, _uncovered(given, authorizer.rules_of(user, change.key.namespace)))


def _missing_for_binding(change: Change, binding: Object, user: User, authorizer: Authorizer, store: Store) -> str:
    name = json_types.text(binding, "roleRef", "name")
    of_namespace = json_types.text(binding, "roleRef", "kind") == "Role"
    resource = resources.ROLE if of_namespace else resources.CLUSTER_ROLE
    asked = Attributes(verb="bind", group=resources.RBAC_GROUP, resource=resource.plural, namespace=change.key.namespace, name=name)
    unchanged = change.before is not None and change.before.view.get("subjects") == binding.get("subjects")
    if unchanged or authorizer.allows(user, asked):
        return ""
    found = store.get(resource, Key(change.key.namespace if of_namespace else "", name))
    if found is None:
        return f'role "{name}" not found, and the user may not bind it'
    return _sentence(user, _uncovered(json_types.objects(found.view, "rules"), authorizer.rules_of(user, change.key.namespace)))


def _sentence(user: User, uncovered: list[Object]) -> str:
    if not uncovered:
        return ""
    listed = "\n".join(json.dumps(one) for one in uncovered)
    groups = json.dumps(list(user.groups))
    return f'user "{user.name}" (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{listed}'


def _uncovered(given: list[Object], held: list[Object]) -> list[Object]:
    return [rule for rule in given if not all(any(authorizer.allows(one, part) for one in held) for part in _parts(rule))]


def _parts(rule: Object) -> Iterator[Attributes]:
    """Yield every single right of a rule; a wildcard is one, which only a wildcard covers."""
    for verb in json_types.strings(rule, "verbs"):
        for path in json_types.strings(rule, "nonResourceURLs"):
            yield Attributes(verb=verb, path=path)
        for group in json_types.strings(rule, "apiGroups"):
            for qualified in json_types.strings(rule, "resources"):
                resource, _, subresource = qualified.partition("/")
                part = Attributes(verb=verb, group=group, resource=resource, subresource=subresource)
                for name in json_types.strings(rule, "resourceNames") or [""]:
                    yield replace(part, name=name)
