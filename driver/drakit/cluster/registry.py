"""The API's verbs on the store: what a real API server does between decoding a request and writing to etcd.

Each write is one step under the store's lock: read, check preconditions, prepare, drop gated fields, validate, store. A write that
changes nothing stores nothing and sends no event.
"""

import datetime
import uuid
from collections.abc import Callable
from dataclasses import replace

from drakit.cluster import applying, errors, json_types, naming, patching, query, refusals, resources, strategies, watching
from drakit.cluster.api import Listing
from drakit.cluster.applying import Manager
from drakit.cluster.features import FeatureGates, drop_disabled
from drakit.cluster.json_types import Json, Object
from drakit.cluster.patching import PatchKind
from drakit.cluster.resources import Resource
from drakit.cluster.schema import table as shapes
from drakit.cluster.store import Entry, Key, Store
from drakit.cluster.validation import table as rules

DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAME_ATTEMPTS = 8
_UNKNOWN_MANAGER = "unknown"


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Registry:
    """All verbs for all kinds; see :class:`drakit.cluster.api.Api` for their contract. Safe to call from any thread."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        gates: FeatureGates | None = None,
        now: Callable[[], datetime.datetime] = _utc_now,
    ) -> None:
        self.store = store or Store()
        self.gates = gates or FeatureGates()
        self._clock = now
        for name in DEFAULT_NAMESPACES:
            if self.store.get(resources.NAMESPACE, Key("", name)) is None:
                self.create(resources.NAMESPACE, {"metadata": {"name": name}})

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object."""
        return self.entry(resource, name, namespace).copy()

    def entry(self, resource: Resource, name: str, namespace: str = "") -> Entry:
        """Return the stored entry of one object; for readers that want its bytes."""
        key = Key(namespace if resource.namespaced else "", name)
        found = self.store.get(resource, key)
        if found is None:
            raise refusals.not_found(resource, name)
        return found

    def select(self, resource: Resource, wanted: query.Query) -> tuple[list[Entry], int]:
        """Return the stored entries that a query means, ordered by namespace and name, and the version of the list."""
        entries, version = self.store.scan(resource)
        return [entry for entry in entries if wanted.matches(entry.view)], version

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
    ) -> Listing:
        """Return the objects of a selection."""
        wanted = query.parse(resource, namespace=namespace, field_selector=field_selector, label_selector=label_selector)
        entries, version = self.select(resource, wanted)
        return Listing(items=[entry.copy() for entry in entries], resource_version=str(version))

    def create(self, resource: Resource, obj: Object, *, namespace: str = "") -> Object:
        """Store a new object."""
        return self._create(resource, obj, namespace).copy()

    def update(self, resource: Resource, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        """Replace an object or its status."""
        name, namespace = json_types.text(obj, "metadata", "name"), json_types.text(obj, "metadata", "namespace")
        with self.store.lock:
            old = self.entry(resource, name, namespace)
            return self._replace(resource, old, obj, subresource=subresource, manager=manager).copy()

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        kind: PatchKind,
        subresource: str = "",
        manager: str = "",
        force: bool = False,
    ) -> Object:
        """Change an object by a patch."""
        with self.store.lock:
            if kind is PatchKind.APPLY:
                me = Manager(name=manager, operation="Apply", subresource=subresource, time=self._now())
                return self._apply(resource, Key(namespace, name), patch, me, force=force).copy()
            old = self.entry(resource, name, namespace)
            new = _patched(resource, old.copy(), patch, kind)
            if json_types.text(new, "metadata", "name") != name:
                raise errors.BadRequestError("metadata.name: may not be changed by a patch")
            return self._replace(resource, old, new, subresource=subresource, manager=manager).copy()

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> Object:
        """Delete an object, or mark it where finalizers or a running pod hold it."""
        with self.store.lock:
            old = self.entry(resource, name, namespace)
            refusals.check_preconditions(resource, old, uid=uid or "", version=resource_version or "")
            if resource is resources.NAMESPACE:
                self._empty_namespace(name)
            grace = strategies.grace_seconds(resource, old.view, grace_seconds)
            if grace or self._is_held(resource, old.view):
                return self._mark_deleted(resource, old, grace).copy()
            return self._remove(resource, old).copy()

    def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
    ) -> Listing:
        """Delete all objects of a selection, each as :meth:`delete` does."""
        with self.store.lock:
            listing = self.list(resource, namespace=namespace, field_selector=field_selector, label_selector=label_selector)
            for obj in listing.items:
                metadata = json_types.mapping(obj, "metadata")
                self.delete(resource, json_types.text(metadata, "name"), namespace=json_types.text(metadata, "namespace"))
            return Listing(items=listing.items, resource_version=str(self.store.version))

    def watch(
        self,
        resource: Resource,
        *,
        since: str,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        bookmarks: bool = False,
        timeout: float | None = None,
    ) -> watching.LocalWatch:
        """Return the changes after ``since``."""
        wanted = query.parse(resource, namespace=namespace, field_selector=field_selector, label_selector=label_selector)
        every = watching.BOOKMARK_SECONDS if bookmarks else None
        return watching.LocalWatch(self.store, resource, wanted, since=since, bookmark_every=every, timeout=timeout)

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _create(self, resource: Resource, body: Object, namespace: str, managers: tuple[Manager, ...] = ()) -> Entry:
        obj, _ = shapes.decode(resource, body)
        metadata = json_types.child(obj, "metadata")
        if metadata.pop("resourceVersion", "") not in ("", "0"):
            raise errors.BadRequestError("metadata.resourceVersion: should not be set on objects to be created")
        _settle_namespace(resource, metadata, namespace)
        strategies.prepare_create(resource, obj, self._now())
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._now()}
        if resource.counts_generations:
            metadata["generation"] = 1
        with self.store.lock:
            self._check_namespace(resource, metadata)
            self._settle_name(resource, metadata)
            drop_disabled(resource, obj, None, self.gates)
            self._validate(resource, obj, None)
            applying.write_managers(obj, managers)
            return self.store.put(resource, obj)

    def _settle_name(self, resource: Resource, metadata: Object) -> None:
        """Choose a free name from generateName, or check that the given one is free."""
        namespace, base = json_types.text(metadata, "namespace"), json_types.text(metadata, "generateName")
        generated = not metadata.get("name") and bool(base)
        for _ in range(_NAME_ATTEMPTS):
            if generated:
                metadata["name"] = naming.generate(base)
            name = json_types.text(metadata, "name")
            if not name or self.store.get(resource, Key(namespace, name)) is None:
                return
            if not generated:
                break
        raise refusals.already_exists(resource, json_types.text(metadata, "name"))

    def _check_namespace(self, resource: Resource, metadata: Object) -> None:
        if not resource.namespaced:
            return
        name = json_types.text(metadata, "namespace")
        found = self.entry(resources.NAMESPACE, name)
        if json_types.text(found.view, "metadata", "deletionTimestamp"):
            raise errors.ForbiddenError(f"unable to create new content in namespace {name} because it is being terminated")

    def _replace(self, resource: Resource, old: Entry, body: Object, *, subresource: str, manager: str) -> Entry:
        """Store ``body`` over ``old``; the store's lock is held."""
        new, _ = shapes.decode(resource, body)
        metadata = json_types.child(new, "metadata")
        refusals.check_preconditions(
            resource,
            old,
            uid=json_types.text(metadata, "uid"),
            version=json_types.text(metadata, "resourceVersion"),
        )
        self._prepare(resource, new, old, subresource)
        me = Manager(name=manager or _UNKNOWN_MANAGER, operation="Update", subresource=subresource, time=self._now())
        applying.write_managers(new, applying.after_write(shapes.shape_of(resource), old.view, new, me))
        return self._store_update(resource, old, new)

    def _prepare(self, resource: Resource, new: Object, old: Entry, subresource: str) -> None:
        if subresource and not (subresource == "status" and resource.has_status):
            raise errors.NotFoundError(f"{resource.qualified} has no sub-resource {subresource!r}")
        metadata = json_types.child(new, "metadata")
        metadata |= {"name": old.key.name, "resourceVersion": str(old.version)}
        if old.key.namespace:
            metadata["namespace"] = old.key.namespace
        strategies.prepare_update(resource, new, old.view, subresource=subresource, now=self._now())
        drop_disabled(resource, new, old.view, self.gates)

    def _store_update(self, resource: Resource, old: Entry, new: Object) -> Entry:
        self._validate(resource, new, old.view)
        if new == old.view:
            return old
        entry = self.store.put(resource, new)
        if json_types.text(new, "metadata", "deletionTimestamp") and not self._is_held(resource, new):
            waits = json_types.number(new, "metadata", "deletionGracePeriodSeconds")
            return entry if waits else self._remove(resource, entry)
        return entry

    def _apply(self, resource: Resource, key: Key, patch: Json, me: Manager, *, force: bool) -> Entry:
        if not me.name:
            raise errors.BadRequestError("fieldManager: is required for apply patch")
        if not isinstance(patch, dict):
            raise errors.BadRequestError("body: an apply patch is an object")
        if items := json_types.items(patch, "metadata", "managedFields"):
            raise errors.BadRequestError(f"metadata.managedFields: must be nil, got {len(items)} entries")
        if json_types.text(patch, "apiVersion") != resource.api_version or json_types.text(patch, "kind") != resource.kind:
            raise errors.BadRequestError(f"apiVersion, kind: an apply patch must say {resource.api_version} {resource.kind}")
        wanted, _ = shapes.decode(resource, patch)
        old = self.store.get(resource, key)
        if old is None and me.subresource:
            raise refusals.not_found(resource, key.name)
        if old is None:
            return self._apply_new(resource, key, wanted, me)
        metadata = json_types.mapping(wanted, "metadata")
        uid, version = json_types.text(metadata, "uid"), json_types.text(metadata, "resourceVersion")
        refusals.check_preconditions(resource, old, uid=uid, version=version)
        outcome = applying.apply(shapes.shape_of(resource), old.copy(), wanted, me, force=force)
        new = outcome.obj
        self._prepare(resource, new, old, me.subresource)
        applying.write_managers(new, outcome.managers)
        return self._store_update(resource, old, new)

    def _apply_new(self, resource: Resource, key: Key, wanted: Object, me: Manager) -> Entry:
        if uid := json_types.text(wanted, "metadata", "uid"):
            raise errors.ConflictError(f"uid mismatch: the provided object specified uid {uid}, and no existing object was found")
        json_types.child(wanted, "metadata")["name"] = key.name
        fields = frozenset(applying.owned(shapes.shape_of(resource), applying.configuration(wanted, me.subresource)))
        return self._create(resource, wanted, key.namespace, (replace(me, fields=fields),))

    def _validate(self, resource: Resource, new: Object, old: Object | None) -> None:
        failures = rules.check(resource, new, old, self.gates)
        if failures:
            raise refusals.invalid(resource, new, failures)

    def _is_held(self, resource: Resource, obj: Object) -> bool:
        """Say whether something keeps a deleted object: its finalizers, or a namespace's contents."""
        if json_types.items(obj, "metadata", "finalizers"):
            return True
        return resource is resources.NAMESPACE and not self._is_empty(json_types.text(obj, "metadata", "name"))

    def _mark_deleted(self, resource: Resource, old: Entry, grace: int) -> Entry:
        """Give an object its deletionTimestamp, ``grace`` seconds ahead; a second delete can only shorten the wait."""
        obj = old.copy()
        metadata = json_types.child(obj, "metadata")
        known = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and isinstance(known, int) and known <= grace:
            return old
        when = self._clock() + datetime.timedelta(seconds=grace)
        metadata["deletionTimestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
        if resource.counts_generations and not known:
            metadata["generation"] = json_types.number(metadata, "generation") + 1
        if resource is resources.NAMESPACE:
            json_types.child(obj, "status")["phase"] = "Terminating"
        return self.store.put(resource, obj)

    def _remove(self, resource: Resource, old: Entry) -> Entry:
        last = self.store.remove(resource, old.key)
        if resource.namespaced:
            self._finish_namespace(old.key.namespace)
        return last

    def _finish_namespace(self, name: str) -> None:
        """Remove a namespace that only waited for its last object."""
        holder = self.store.get(resources.NAMESPACE, Key("", name))
        waits = holder is not None and bool(json_types.text(holder.view, "metadata", "deletionTimestamp"))
        if holder is not None and waits and not self._is_held(resources.NAMESPACE, holder.view):
            self.store.remove(resources.NAMESPACE, holder.key)

    def _empty_namespace(self, name: str) -> None:
        for resource in resources.ALL:
            if resource.namespaced:
                self.delete_collection(resource, namespace=name)

    def _is_empty(self, namespace: str) -> bool:
        wanted = query.Query(namespace=namespace)
        return not any(self.select(resource, wanted)[0] for resource in resources.ALL if resource.namespaced)


def _settle_namespace(resource: Resource, metadata: Object, namespace: str) -> None:
    """Write the namespace of the request into a new object; refuse one that says otherwise, or none where one is needed."""
    given = json_types.text(metadata, "namespace")
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if given and namespace and given != namespace:
        raise errors.BadRequestError(f"metadata.namespace: the object's namespace {given} does not match the request's {namespace}")
    if not (given or namespace):
        raise errors.BadRequestError(f"metadata.namespace: a {resource.kind} needs a namespace")
    metadata["namespace"] = given or namespace


def _patched(resource: Resource, live: Object, patch: Json, kind: PatchKind) -> Object:
    if kind is PatchKind.JSON:
        new = patching.json_patch(live, patch)
    elif not isinstance(patch, dict):
        raise errors.BadRequestError("body: this kind of patch is an object")
    elif kind is PatchKind.MERGE:
        new = patching.merge(live, patch)
    else:
        new = patching.strategic(shapes.shape_of(resource), live, patch)
    if not isinstance(new, dict):
        raise errors.BadRequestError("body: the patch leaves no object")
    return new
