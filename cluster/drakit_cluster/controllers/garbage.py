"""Garbage collection: an object is deleted when all its owners are deleted.

Owners of unknown kinds cannot be looked up, so they count as existing.
"""

import functools
from collections.abc import Callable

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import Change, discard, find, find_named, key_of, uid_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import ALL, Resource

Dependent = tuple[Resource, Key]
_KINDS = {(resource.group, resource.kind): resource for resource in ALL}


class GarbageCollector:
    """Deletes objects whose owners are deleted; ``observe`` records the owners."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder
        self._owned: dict[str, set[Dependent]] = {}
        self._checks = {resource: functools.partial(self._check, resource) for resource in ALL}

    def observe(self, change: Change) -> None:
        """Record the owners of an object, or remove a deleted object."""
        dependent = (change.resource, key_of(change.object))
        for owner in _owner_uids(change.before or {}) | (_owner_uids(change.object) if change.deleted else set()):
            dependents = self._owned.get(owner, set())
            dependents.discard(dependent)
            if not dependents:
                self._owned.pop(owner, None)
        if not change.deleted:
            for owner in _owner_uids(change.object):
                self._owned.setdefault(owner, set()).add(dependent)

    def owned_by(self, owner: Object) -> set[Dependent]:
        """Return the objects that the owner owns."""
        return set(self._owned.get(uid_of(owner), ()))

    def check_of(self, resource: Resource) -> Callable[[Key], None]:
        """Return the check for objects of one kind, always the same function for a kind."""
        return self._checks[resource]

    def _check(self, resource: Resource, key: Key) -> None:
        if (obj := find(self._api, resource, key)) is None:
            return
        owners = json_types.objects(obj, "metadata", "ownerReferences")
        if not owners or pod_claims.is_deleting(obj) or any(self._exists(owner, key.namespace) for owner in owners):
            return
        if discard(self._api, resource, obj):
            names = ", ".join(f"{json_types.text(owner, 'kind')} {json_types.text(owner, 'name')}" for owner in owners)
            self._recorder.normal(resource, obj, "OwnerGone", f"deleted with its owner {names}")

    def _exists(self, owner: Object, namespace: str) -> bool:
        group = json_types.text(owner, "apiVersion").rpartition("/")[0]
        resource = _KINDS.get((group, json_types.text(owner, "kind")))
        return resource is None or find_named(self._api, resource, owner, namespace) is not None


def _owner_uids(obj: Object) -> set[str]:
    return {json_types.text(owner, "uid") for owner in json_types.objects(obj, "metadata", "ownerReferences")}
