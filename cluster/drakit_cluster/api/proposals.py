"""The new object that a request would store, before validation, and errors with the messages that clients expect.

The functions only read the store. The caller holds the store's lock.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from drakit_cluster.api import applying, patching, strategies
from drakit_cluster.api.applying import Manager
from drakit_cluster.api.object_errors import already_exists, check_identity, check_preconditions, not_found
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.reviewing import Change, Operation
from drakit_cluster.api.storage.store import Entry, Key, Store
from drakit_cluster.objects import errors, json_types, naming, resources
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.features import FeatureGates, drop_disabled
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table as shapes

_NAME_ATTEMPTS = 8
_UNKNOWN_MANAGER = "unknown"


@dataclass(frozen=True, kw_only=True)
class Writer:
    """The options of a write: field manager, sub-resource, and whether an apply forces conflicts."""

    manager: str = ""
    subresource: str = ""
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Proposals:
    """Creates changes from requests. ``now`` returns the current time in the API's format."""

    store: Store
    gates: FeatureGates
    now: Callable[[], str]

    def entry(self, resource: Resource, name: str, namespace: str) -> Entry:
        """Return the stored entry of one object; NotFoundError."""
        entry = self.store.get(resource, Key(namespace if resource.namespaced else "", name))
        if entry is None:
            raise not_found(resource, name)
        return entry

    def creation(
        self, resource: Resource, body: Object, namespace: str, managers: tuple[Manager, ...] = (), *, manager: str = ""
    ) -> Change:
        """Return the creation of ``body``, with its name and the fields that the server sets.

        Its fields belong to ``managers``, or to the field manager ``manager``; with neither, nobody owns them yet.
        """
        obj, _ = shapes.decode(resource, body, self.gates.decoding)
        metadata = json_types.child(obj, "metadata")
        if metadata.pop("resourceVersion", "") not in ("", "0"):
            raise errors.BadRequestError("metadata.resourceVersion: should not be set on objects to be created")
        _settle_namespace(resource, metadata, namespace)
        strategies.prepare_create(resource, obj, self.now())
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.now()}
        if resource.counts_generations:
            metadata["generation"] = 1
        self._check_namespace(resource, metadata)
        if resource is resources.POD:
            self._check_account(obj)
        self._settle_name(resource, metadata)
        drop_disabled(resource, obj, None, self.gates)
        me = Manager(name=manager, operation="Update", time=self.now())
        applying.write_managers(obj, managers or applying.created(shapes.shape_of(resource, self.gates.decoding), obj, me))
        if resource is resources.JOB:
            strategies.select_pods(obj)
        key = Key(json_types.text(metadata, "namespace"), json_types.text(metadata, "name"))
        return Change(operation=Operation.CREATE, resource=resource, key=key, new=obj)

    def replacement(self, resource: Resource, old: Entry, body: Object, writer: Writer) -> Change:
        """Return the update of ``old`` to ``body``."""
        new, _ = shapes.decode(resource, body, self.gates.decoding)
        metadata = json_types.child(new, "metadata")
        uid, version = json_types.text(metadata, "uid"), json_types.text(metadata, "resourceVersion")
        check_preconditions(resource, old, uid=uid, version=version)
        managers = applying.read_managers(old.view) if writer.subresource else applying.claimed_managers(old.view, new)
        self._prepare(resource, new, old, writer.subresource)
        me = Manager(name=writer.manager or _UNKNOWN_MANAGER, operation="Update", subresource=writer.subresource, time=self.now())
        shape = shapes.shape_of(resource, self.gates.decoding)
        applying.write_managers(new, applying.after_write(shape, old.view, new, me, managers))
        return _update(resource, old, new, writer.subresource)

    def patched(self, resource: Resource, old: Entry, patch: Json, kind: PatchKind, writer: Writer) -> Change:
        """Return the update of ``old`` by a patch that is no apply."""
        new = _patched(resource, old.copy(), patch, kind, self.gates)
        if json_types.text(new, "metadata", "name") != old.key.name:
            raise errors.BadRequestError("metadata.name: may not be changed by a patch")
        check_identity(resource, old, json_types.text(new, "metadata", "uid"))
        return self.replacement(resource, old, new, writer)

    def applied(self, resource: Resource, key: Key, patch: Json, writer: Writer) -> Change:
        """Return the change of an apply patch: the object's creation, or its update by ownership."""
        config = _configuration(resource, patch, writer)
        me = Manager(name=writer.manager, operation="Apply", subresource=writer.subresource, time=self.now())
        old = self.store.get(resource, key)
        if old is None and me.subresource:
            raise not_found(resource, key.name)
        if old is None:
            return self._applied_new(resource, key, config, me)
        metadata = json_types.mapping(config, "metadata")
        uid, version = json_types.text(metadata, "uid"), json_types.text(metadata, "resourceVersion")
        check_identity(resource, old, uid)
        check_preconditions(resource, old, uid="", version=version)
        outcome = applying.apply(shapes.shape_of(resource, self.gates.decoding), old.copy(), config, me, force=writer.force)
        new = outcome.obj
        self._prepare(resource, new, old, me.subresource)
        applying.write_managers(new, outcome.managers)
        return _update(resource, old, new, me.subresource)

    def _applied_new(self, resource: Resource, key: Key, config: Object, me: Manager) -> Change:
        if uid := json_types.text(config, "metadata", "uid"):
            raise errors.ConflictError(f"uid mismatch: the provided object specified uid {uid}, and no existing object was found")
        json_types.child(config, "metadata")["name"] = key.name
        fields = frozenset(applying.owned(shapes.shape_of(resource, self.gates.decoding), applying.configuration(config, me.subresource)))
        return self.creation(resource, config, key.namespace, (replace(me, fields=fields),))

    def _prepare(self, resource: Resource, new: Object, old: Entry, subresource: str) -> None:
        if subresource and not (subresource == "status" and resource.has_status):
            raise errors.NotFoundError(f"{resource.qualified} has no sub-resource {subresource!r}")
        metadata = json_types.child(new, "metadata")
        metadata |= {"name": old.key.name, "resourceVersion": str(old.version)}
        if old.key.namespace:
            metadata["namespace"] = old.key.namespace
        strategies.prepare_update(resource, new, old.view, subresource=subresource, now=self.now())
        drop_disabled(resource, new, old.view, self.gates)

    def _settle_name(self, resource: Resource, metadata: Object) -> None:
        """Choose an unused name from generateName, or check that the object's name is unused."""
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
        raise already_exists(resource, json_types.text(metadata, "name"))

    def _check_account(self, pod: Object) -> None:
        """Raise ForbiddenError for a pod whose service account does not exist. Source: the ServiceAccount admission plugin."""
        namespace, account = json_types.text(pod, "metadata", "namespace"), json_types.text(pod, "spec", "serviceAccountName")
        if self.store.get(resources.SERVICEACCOUNT, Key(namespace, account)) is None:
            name = json_types.text(pod, "metadata", "name") or json_types.text(pod, "metadata", "generateName")
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            details = Details(name=name, kind=resources.POD.plural)
            raise errors.ForbiddenError(f'pods "{name}" is forbidden: {why}', details)

    def _check_namespace(self, resource: Resource, metadata: Object) -> None:
        if not resource.namespaced:
            return
        name = json_types.text(metadata, "namespace")
        entry = self.entry(resources.NAMESPACE, name, "")
        if json_types.text(entry.view, "metadata", "deletionTimestamp"):
            raise errors.ForbiddenError(f"unable to create new content in namespace {name} because it is being terminated")


def _update(resource: Resource, old: Entry, new: Object, subresource: str) -> Change:
    return Change(operation=Operation.UPDATE, resource=resource, key=old.key, subresource=subresource, before=old, new=new)


def _configuration(resource: Resource, patch: Json, writer: Writer) -> Object:
    """Return the decoded configuration of an apply patch; InvalidError or BadRequestError unless it is an apply patch of this kind."""
    if not writer.manager:
        raise errors.InvalidError("fieldManager: Required value: is required for apply patch")
    if not isinstance(patch, dict):
        raise errors.BadRequestError("body: an apply patch is an object")
    if items := json_types.items(patch, "metadata", "managedFields"):
        raise errors.BadRequestError(f"metadata.managedFields: must be nil, got {len(items)} entries")
    if json_types.text(patch, "apiVersion") != resource.api_version or json_types.text(patch, "kind") != resource.kind:
        raise errors.BadRequestError(f"apiVersion, kind: an apply patch must say {resource.api_version} {resource.kind}")
    return shapes.decode(resource, patch)[0]


def _settle_namespace(resource: Resource, metadata: Object, namespace: str) -> None:
    """Write the namespace of the request into a new object. Raises BadRequestError where they differ, or where a needed one is missing."""
    own_namespace = json_types.text(metadata, "namespace")
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if own_namespace and namespace and own_namespace != namespace:
        raise errors.BadRequestError(f"metadata.namespace: the object's namespace {own_namespace} does not match the request's {namespace}")
    if not (own_namespace or namespace):
        raise errors.BadRequestError(f"metadata.namespace: a {resource.kind} needs a namespace")
    metadata["namespace"] = own_namespace or namespace


def _patched(resource: Resource, live: Object, patch: Json, kind: PatchKind, gates: FeatureGates) -> Object:
    if kind is PatchKind.JSON:
        new = patching.json_patch(live, patch)
    elif not isinstance(patch, dict):
        raise errors.BadRequestError("body: this kind of patch is an object")
    elif kind is PatchKind.MERGE:
        new = patching.merge(live, patch)
    else:
        new = patching.strategic(shapes.shape_of(resource, gates.decoding), live, patch)
    if not isinstance(new, dict):
        raise errors.BadRequestError("body: the patch leaves no object")
    return new
