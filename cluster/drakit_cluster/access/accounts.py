"""Tokens of service accounts: the identity that a TokenRequest gives, and how long it is valid.

A token bound to a pod names the pod and its node, and becomes invalid with the pod. Every token becomes invalid with its account.
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

    def issue(self, namespace: str, name: str, request: Object, requester: User) -> Object:
        """Return a decoded TokenRequest with its status. Raises ApiError."""
        account = self._stored_object(resources.SERVICEACCOUNT, namespace, name)
        seconds = _lifetime_seconds(request)
        reference = json_types.mapping(request, "spec", "boundObjectRef")
        checks = [_existence_check(self.store, resources.SERVICEACCOUNT, Key(namespace, name), _uid(account))]
        extra: dict[str, tuple[str, ...]] = {}
        if reference:
            resource, target = self._bound_object(namespace, reference)
            self._check_node(requester, resource, target)
            checks.append(_existence_check(self.store, resource, _key(target), _uid(target)))
            extra = self._user_extra(resource, target)
            if resource is resources.POD and (json_types.text(target, "spec", "serviceAccountName") or "default") != name:
                raise errors.BadRequestError(f"spec.boundObjectRef: pod {_key(target).name} does not use the service account {name}")
        elif requester.node:
            raise errors.ForbiddenError("node requested token not bound to a pod")
        user = User(name=users.account_name(namespace, name), uid=_uid(account), groups=users.account_groups(namespace), extra=extra)
        audiences = tuple(json_types.strings(request, "spec", "audiences")) or (tokens.AUDIENCE,)
        token = self.tokens.issue_to(user, seconds=seconds, still_valid=lambda: all(exists() for exists in checks), audiences=audiences)
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        status: Object = {"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
        spec = json_types.mapping(request, "spec") | {"expirationSeconds": seconds, "audiences": [*audiences]}
        metadata: Object = {"name": name, "namespace": namespace}
        return request | {"metadata": metadata, "spec": spec, "status": status}

    def _stored_object(self, resource: Resource, namespace: str, name: str) -> Object:
        entry = self.store.get(resource, Key(namespace if resource.namespaced else "", name))
        if entry is None:
            raise errors.NotFoundError(f'{resource.qualified} "{name}" not found')
        return entry.view

    def _bound_object(self, namespace: str, reference: Object) -> tuple[Resource, Object]:
        resource = _BINDABLE.get((json_types.text(reference, "apiVersion"), json_types.text(reference, "kind")))
        if resource is None:
            raise errors.BadRequestError("spec.boundObjectRef: a token can be bound to a v1 Pod, Secret or Node")
        target = self._stored_object(resource, namespace, json_types.text(reference, "name"))
        uid = json_types.text(reference, "uid")
        if uid and uid != _uid(target):
            raise errors.ConflictError(f"spec.boundObjectRef.uid: the UID in the bound object reference ({uid}) does not match the UID")
        return resource, target

    def _check_node(self, requester: User, resource: Resource, target: Object) -> None:
        """Raise ForbiddenError where a kubelet requests a token for anything else than a pod that runs on its node."""
        if requester.node and (resource is not resources.POD or json_types.text(target, "spec", "nodeName") != requester.node):
            raise errors.ForbiddenError("node requested token bound to a pod scheduled on a different node")

    def _user_extra(self, resource: Resource, target: Object) -> dict[str, tuple[str, ...]]:
        if resource is resources.NODE:
            return {users.NODE_NAME: (_key(target).name,), users.NODE_UID: (_uid(target),)}
        if resource is not resources.POD:
            return {}
        extra: dict[str, tuple[str, ...]] = {users.POD_NAME: (_key(target).name,), users.POD_UID: (_uid(target),)}
        node = json_types.text(target, "spec", "nodeName")
        if node:
            extra[users.NODE_NAME] = (node,)
            if (entry := self.store.get(resources.NODE, Key("", node))) is not None:
                extra[users.NODE_UID] = (_uid(entry.view),)
        return extra


def _existence_check(store: Store, resource: Resource, key: Key, uid: str) -> Callable[[], bool]:
    def exists() -> bool:
        entry = store.get(resource, key)
        return entry is not None and _uid(entry.view) == uid

    return exists


def _lifetime_seconds(request: Object) -> int:
    requested = json_types.at(request, "spec", "expirationSeconds")
    seconds = DEFAULT_SECONDS if requested is None else json_types.number(request, "spec", "expirationSeconds")
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise errors.InvalidError(f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes")
    return seconds


def _uid(obj: Object) -> str:
    return json_types.text(obj, "metadata", "uid")


def _key(obj: Object) -> Key:
    return Key(json_types.text(obj, "metadata", "namespace"), json_types.text(obj, "metadata", "name"))
