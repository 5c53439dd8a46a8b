"""The API's verbs on the store: the work of a real API server between decoding a request and writing to etcd.

Each write is one step under the store's lock: read, check preconditions, prepare, drop gated fields, validate, review, store. A write that
changes nothing stores nothing and sends no event. A review that waits for a webhook runs without the lock; if the object changes meanwhile,
the write starts again.
"""

import datetime
import functools
import json
import uuid
from collections.abc import Callable
from typing import Unpack

from drakit_cluster import cel
from drakit_cluster.access import roles
from drakit_cluster.admission import claim_status, kinds
from drakit_cluster.api import object_errors, strategies
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.proposals import Proposals, Writer
from drakit_cluster.api.reviewing import TRUSTED, Change, Operation, Review
from drakit_cluster.api.storage import query, watching
from drakit_cluster.api.storage.store import FIRST_VERSION, Entry, Key, Store
from drakit_cluster.client import api
from drakit_cluster.client.api import Listing
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.validation import table as rules
from drakit_cluster.objects.validation.context import Context

DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_REVIEW_ATTEMPTS = 8


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Registry:
    """The verbs for all kinds; see :class:`drakit_cluster.client.api.Api` for their contract. Safe to call from any thread.

    Writes take a ``review``; the cluster's own components write without one. A new registry has the default namespaces and roles.
    """

    def __init__(
        self, store: Store | None = None, *, gates: FeatureGates | None = None, now: Callable[[], datetime.datetime] = _utc_now
    ) -> None:
        self.store = store or Store()
        self.gates = gates or FeatureGates()
        self._clock = now
        self._proposals = Proposals(store=self.store, gates=self.gates, now=self._now)
        self._context = Context(gates=self.gates, selectors=cel.Selectors(self.gates))
        self._fill()

    def _fill(self) -> None:
        """Add the initial objects that the store does not have."""
        if self.store.version > FIRST_VERSION:
            self._create_missing()
            return
        now = self._now()
        for resource, obj in _initial_objects(self.gates):
            metadata = json_types.mapping(obj, "metadata") | {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            self.store.put(resource, obj | {"metadata": metadata})

    def _create_missing(self) -> None:
        namespaces: list[tuple[Resource, Object]] = [(resources.NAMESPACE, {"metadata": {"name": name}}) for name in DEFAULT_NAMESPACES]
        for resource, obj in namespaces + roles.bootstrap():
            if self.store.get(resource, Key("", json_types.text(obj, "metadata", "name"))) is None:
                self.create(resource, obj)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object."""
        return self.entry(resource, name, namespace).copy()

    def entry(self, resource: Resource, name: str, namespace: str = "") -> Entry:
        """Return the stored entry of one object; for callers that need its encoded bytes."""
        return self._proposals.entry(resource, name, namespace)

    def select(self, resource: Resource, selection: query.Query) -> tuple[list[Entry], int]:
        """Return the stored entries that match a query, ordered by namespace and name, and the version of the list."""
        entries, version = self.store.scan(resource)
        return [entry for entry in entries if selection.matches(entry.view)], version

    def list(self, resource: Resource, **options: Unpack[api.ListOptions]) -> Listing:
        """Return the objects of a selection."""
        entries, version = self.select(resource, query.parse(resource, **options))
        return Listing(items=[entry.copy() for entry in entries], resource_version=str(version))

    def create(self, resource: Resource, obj: Object, *, namespace: str = "", manager: str = "", review: Review = TRUSTED) -> Object:
        """Store a new object. Its fields belong to the field manager ``manager``, if one is given."""
        return self._write(lambda: self._proposals.creation(resource, obj, namespace, manager=manager), review).copy()

    def update(self, resource: Resource, obj: Object, *, subresource: str = "", manager: str = "", review: Review = TRUSTED) -> Object:
        """Replace an object or its status."""
        name, namespace = json_types.text(obj, "metadata", "name"), json_types.text(obj, "metadata", "namespace")
        writer = Writer(manager=manager, subresource=subresource)
        propose = self._proposals.replacement
        return self._write(lambda: propose(resource, self.entry(resource, name, namespace), obj, writer), review).copy()

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        kind: PatchKind,
        review: Review = TRUSTED,
        **options: Unpack[api.PatchOptions],
    ) -> Object:
        """Change an object by a patch."""
        writer = Writer(**options)

        def propose() -> Change:
            if kind is PatchKind.APPLY:
                return self._proposals.applied(resource, Key(namespace, name), patch, writer)
            return self._proposals.patched(resource, self.entry(resource, name, namespace), patch, kind, writer)

        return self._write(propose, review).copy()

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        orphan: bool = False,
        review: Review = TRUSTED,
        **options: Unpack[api.DeleteOptions],
    ) -> Object:
        """Delete an object, or mark it as deleted where it has finalizers or is a running pod.

        With ``orphan``, the objects that it owns stay and lose their reference to it.
        """

        def propose() -> Change:
            old = self.entry(resource, name, namespace)
            object_errors.check_preconditions(resource, old, uid=options.get("uid") or "", version=options.get("resource_version") or "")
            return Change(operation=Operation.DELETE, resource=resource, key=old.key, before=old, orphan=orphan)

        return self._write(propose, review, grace=options.get("grace_seconds")).copy()

    def delete_collection(
        self, resource: Resource, *, grace_seconds: int | None = None, review: Review = TRUSTED, **options: Unpack[api.ListOptions]
    ) -> Listing:
        """Delete all objects of a selection, each as :meth:`delete` does."""
        listing = self.list(resource, **options)
        for obj in listing.items:
            name, namespace, uid = (json_types.text(obj, "metadata", field) for field in ("name", "namespace", "uid"))
            try:
                self.delete(resource, name, namespace=namespace, uid=uid, grace_seconds=grace_seconds, review=review)
            except (errors.NotFoundError, errors.ConflictError):
                continue  # Already deleted, or replaced by an object that was not selected.
        return Listing(items=listing.items, resource_version=str(self.store.version))

    def watch(
        self, resource: Resource, *, since: str, bookmarks: bool = False, timeout: float | None = None, **options: Unpack[api.ListOptions]
    ) -> watching.LocalWatch:
        """Return the changes after ``since``."""
        selection = query.parse(resource, **options)
        every = watching.BOOKMARK_SECONDS if bookmarks else None
        return watching.LocalWatch(self.store, resource, selection, since=since, bookmark_every=every, timeout=timeout)

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _write(self, propose: Callable[[], Change], review: Review, *, grace: int | None = None) -> Entry:
        """Propose, check and store a change; propose again if the object changed while the review waited."""
        for _ in range(_REVIEW_ATTEMPTS):
            with self.store.lock:
                change = propose()
                if not review.waits(change):
                    self._validate(change, review)
                    review.admit(change)
                    return self._commit(change, grace, dry_run=review.dry_run)
            with self.store.lock:
                self._validate(change, review)
            review.admit(change)
            with self.store.lock:
                if self.store.get(change.resource, change.key) is change.before:
                    return self._commit(change, grace, dry_run=review.dry_run)
        raise errors.ConflictError(f"{change.resource.qualified} {change.key.name!r} changed while it was reviewed; try again")

    def _validate(self, change: Change, review: Review) -> None:
        if change.new is None:
            return
        old = change.before.view if change.before else None
        failures = rules.check(change.resource, change.new, old, self._context, subresource=change.subresource)
        failures += kinds.failures(change)
        failures += claim_status.admin_failures(change, self.store)
        failures += review.failures(change)
        if failures:
            raise object_errors.invalid(change.resource, change.new, failures)

    def _commit(self, change: Change, grace: int | None, *, dry_run: bool) -> Entry:
        if dry_run:
            return self._preview(change, grace)
        if change.before is not None and change.new is None:
            if change.orphan:
                self._orphan(json_types.text(change.before.view, "metadata", "uid"))
            return self._delete(change.resource, change.before, grace)
        new = change.new or {}
        if change.before is not None and new == change.before.view:
            return change.before
        entry = self.store.put(change.resource, new)
        if change.operation is Operation.CREATE and change.resource is resources.NAMESPACE:
            self.create(resources.SERVICEACCOUNT, {"metadata": {"name": strategies.DEFAULT_ACCOUNT}}, namespace=change.key.name)
        deleted = change.before is not None and bool(json_types.text(new, "metadata", "deletionTimestamp"))
        if deleted and not self._is_held(change.resource, new) and not json_types.number(new, "metadata", "deletionGracePeriodSeconds"):
            return self._remove(change.resource, entry)
        return entry

    def _preview(self, change: Change, grace: int | None) -> Entry:
        """Return the result of a write without storing it; a new object has no resourceVersion yet."""
        new, before = change.new, change.before
        if new is None and before is not None:
            seconds = strategies.grace_seconds(change.resource, before.view, grace)
            held = seconds or self._is_held(change.resource, before.view)
            new = self._marked(change.resource, before, seconds) if held else before.view
        obj = new or {}
        return Entry(change.key, before.version if before else 0, obj, json.dumps(obj, ensure_ascii=False).encode())

    def _delete(self, resource: Resource, old: Entry, requested_grace: int | None) -> Entry:
        if resource is resources.NAMESPACE:
            self._empty_namespace(old.key.name)
        grace = strategies.grace_seconds(resource, old.view, requested_grace)
        if grace or self._is_held(resource, old.view):
            return self._mark_deleted(resource, old, grace)
        return self._remove(resource, old)

    def _is_held(self, resource: Resource, obj: Object) -> bool:
        """Return whether a deleted object must stay: it has finalizers, or is a namespace with contents."""
        if json_types.items(obj, "metadata", "finalizers"):
            return True
        return resource is resources.NAMESPACE and not self._is_empty(json_types.text(obj, "metadata", "name"))

    def _mark_deleted(self, resource: Resource, old: Entry, grace: int) -> Entry:
        obj = self._marked(resource, old, grace)
        return old if obj == old.view else self.store.put(resource, obj)

    def _marked(self, resource: Resource, old: Entry, grace: int) -> Object:
        """Return an object with its deletionTimestamp, ``grace`` seconds ahead; a second delete can only shorten the wait."""
        obj = old.copy()
        metadata = json_types.child(obj, "metadata")
        earlier_grace = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and isinstance(earlier_grace, int) and earlier_grace <= grace:
            return obj
        when = self._clock() + datetime.timedelta(seconds=grace)
        metadata["deletionTimestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
        if resource.counts_generations and not earlier_grace:
            metadata["generation"] = json_types.number(metadata, "generation") + 1
        if resource is resources.NAMESPACE:
            json_types.child(obj, "status")["phase"] = "Terminating"
        return obj

    def _remove(self, resource: Resource, old: Entry) -> Entry:
        last = self.store.remove(resource, old.key)
        if resource.namespaced:
            self._finish_namespace(old.key.namespace)
        return last

    def _orphan(self, owner: str) -> None:
        """Remove an owner's UID from the ownerReferences of all objects."""
        for resource in resources.ALL:
            for entry in self.store.scan(resource)[0]:
                references = json_types.objects(entry.view, "metadata", "ownerReferences")
                remaining = [reference for reference in references if reference.get("uid") != owner]
                if remaining != references:
                    obj = entry.copy()
                    json_types.child(obj, "metadata")["ownerReferences"] = json_types.from_objects(remaining)
                    self.store.put(resource, obj)

    def _finish_namespace(self, name: str) -> None:
        """Remove a namespace that is being deleted and is now empty."""
        holder = self.store.get(resources.NAMESPACE, Key("", name))
        waits = holder is not None and bool(json_types.text(holder.view, "metadata", "deletionTimestamp"))
        if holder is not None and waits and not self._is_held(resources.NAMESPACE, holder.view):
            self.store.remove(resources.NAMESPACE, holder.key)

    def _empty_namespace(self, name: str) -> None:
        for resource in resources.ALL:
            if resource.namespaced:
                self.delete_collection(resource, namespace=name)

    def _is_empty(self, namespace: str) -> bool:
        selection = query.Query(namespace=namespace)
        return not any(self.select(resource, selection)[0] for resource in resources.ALL if resource.namespaced)


class _Checked(Registry):
    """A registry that creates its initial objects as any others."""

    def _fill(self) -> None:
        self._create_missing()


@functools.lru_cache(maxsize=32)
def _initial_objects(gates: FeatureGates) -> list[tuple[Resource, Object]]:
    """Return the objects of a new cluster in the order of their creation. They are created once, because each takes part of a millisecond."""
    store = _Checked(gates=gates).store
    entries = [(resource, entry) for resource in resources.ALL for entry in store.scan(resource)[0]]
    return [(resource, entry.view) for resource, entry in sorted(entries, key=lambda pair: pair[1].version)]
