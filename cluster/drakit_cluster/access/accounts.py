"""Tokens of service accounts: the identity that a TokenRequest gives, and how long it holds.

A token bound to a pod says which pod and node it is for, and ends with the pod; every token ends with its account.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass

from drakit_cluster.access import tokens, users
from drakit_cluster.access.tokens import Tokens
from drakit_cluster.access.users import User
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
_BINDABLE = {("v1", "Pod"): resources.POD, ("v1", "Secret"): resources.SECRET, ("v1", "Node"): resources.NODE}


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The issuer of tokens for service accounts of the store."""

    store: Store
    tokens: Tokens

    def issue(self, namespace: str, name: str, request: Object, asker: User) -> Object:
        """Answer a TokenRequest that is decoded: return it with its status. Raises ApiError."""
        account = self._found(resources.SERVICEACCOUNT, namespace, name)
        seconds = _seconds(request)
        bound = json_types.mapping(request, "spec", "boundObjectRef")
        held = [_held(self.store, resources.SERVICEACCOUNT, Key(namespace, name), _uid(account))]
        extra: dict[str, tuple[str, ...]] = {}
        if bound:
            resource, target = self._bound(namespace, bound)
            self._check_node(asker, resource, target)
            held.append(_held(self.store, resource, _key(target), _uid(target)))
            extra = self._extra(resource, target)
            if resource is resources.POD and (json_types.text(target, "spec", "serviceAccountName") or "default") != name:
                raise errors.BadRequestError(f"spec.boundObjectRef: pod {_key(target).name} does not use the service account {name}")
        elif asker.node:
            raise errors.ForbiddenError("node requested token not bound to a pod")
        user = User(name=users.account_name(namespace, name), uid=_uid(account), groups=users.account_groups(namespace), extra=extra)
        audiences = tuple(json_types.strings(request, "spec", "audiences")) or (tokens.AUDIENCE,)
        token = self.tokens.issue_to(user, seconds=seconds, holds=lambda: all(check() for check in held), audiences=audiences)
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        status: Object = {"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
        spec = json_types.mapping(request, "spec") | {"expirationSeconds": seconds, "audiences": [*audiences]}
        metadata: Object = {"name": name, "namespace": namespace}
        return request | {"metadata": metadata, "spec": spec, "status": status}

    def _found(self, resource: Resource, namespace: str, name: str) -> Object:
        entry = self.store.get(resource, Key(namespace if resource.namespaced else "", name))
        if entry is None:
            raise errors.NotFoundError(f'{resource.qualified} "{name}" not found')
        return entry.view

    def _bound(self, namespace: str, bound: Object) -> tuple[Resource, Object]:
        resource = _BINDABLE.get((json_types.text(bound, "apiVersion"), json_types.text(bound, "kind")))
        if resource is None:
            raise errors.BadRequestError("spec.boundObjectRef: a token can be bound to a v1 Pod, Secret or Node")
        target = self._found(resource, namespace, json_types.text(bound, "name"))
        wanted = json_types.text(bound, "uid")
        if wanted and wanted != _uid(target):
            raise errors.ConflictError(f"spec.boundObjectRef.uid: the UID in the bound object reference ({wanted}) does not match the UID")
        return resource, target

    def _check_node(self, asker: User, resource: Resource, target: Object) -> None:
        """A kubelet gets tokens for the pods that run on it, and for nothing else."""
        if asker.node and (resource is not resources.POD or json_types.text(target, "spec", "nodeName") != asker.node):
            raise errors.ForbiddenError("node requested token bound to a pod scheduled on a different node")

    def _extra(self, resource: Resource, target: Object) -> dict[str, tuple[str, ...]]:
        if resource is resources.NODE:
            return {users.NODE_NAME: (_key(target).name,), users.NODE_UID: (_uid(target),)}
        if resource is not resources.POD:
            return {}
        found: dict[str, tuple[str, ...]] = {users.POD_NAME: (_key(target).name,), users.POD_UID: (_uid(target),)}
        node = json_types.text(target, "spec", "nodeName")
        if node:
            found[users.NODE_NAME] = (node,)
            if (entry := self.store.get(resources.NODE, Key("", node))) is not None:
                found[users.NODE_UID] = (_uid(entry.view),)
        return found


def _held(store: Store, resource: Resource, key: Key, uid: str) -> Callable[[], bool]:
    def holds() -> bool:
        entry = store.get(resource, key)
        return entry is not None and _uid(entry.view) == uid

    return holds


def _seconds(request: Object) -> int:
    given = json_types.at(request, "spec", "expirationSeconds")
    seconds = DEFAULT_SECONDS if given is None else json_types.number(request, "spec", "expirationSeconds")
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise errors.InvalidError(f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes")
    return seconds


def _uid(obj: Object) -> str:
    return json_types.text(obj, "metadata", "uid")


def _key(obj: Object) -> Key:
    return Key(json_types.text(obj, "metadata", "namespace"), json_types.text(obj, "metadata", "name"))
