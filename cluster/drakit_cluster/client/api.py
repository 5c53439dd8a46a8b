"""The API for its callers: one protocol for the registry in this process and for the client over HTTPS."""

from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.watching import Watch
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Objects of one kind as they were at ``resource_version``; a watch from there misses no change."""

    items: list[Object]
    resource_version: str


class ListOptions(TypedDict, total=False):
    """The selection of a list: objects of one namespace, or of all (None or empty), that match both selectors."""

    namespace: str | None
    field_selector: str
    label_selector: str


class PatchOptions(TypedDict, total=False):
    """The options of a patch: sub-resource, field manager, and whether an apply forces conflicts."""

    subresource: str
    manager: str
    force: bool


class DeleteOptions(TypedDict, total=False):
    """The options of a delete: preconditions, and the seconds until a pod on a node is gone; None, or no entry, if the object decides."""

    uid: str | None
    resource_version: str | None
    grace_seconds: int | None


class Api(Protocol):
    """The verbs. They never change an object that is passed in, and return copies. Failures are ``errors.ApiError``."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object; NotFoundError."""

    def list(self, resource: Resource, **options: Unpack[ListOptions]) -> Listing:
        """Return the objects of one namespace, or of all (None or empty)."""

    def create(self, resource: Resource, obj: Object, *, namespace: str = "") -> Object:
        """Store a new object; AlreadyExistsError, InvalidError, NotFoundError for a namespace that does not exist."""

    def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object (or its status); ConflictError if its resourceVersion or UID is not the stored one."""

    def patch(
        self, resource: Resource, name: str, patch: Json, *, namespace: str = "", kind: PatchKind, **options: Unpack[PatchOptions]
    ) -> Object:
        """Change an object. Apply patches need ``manager``, and create a missing object."""

    def delete(self, resource: Resource, name: str, *, namespace: str = "", **options: Unpack[DeleteOptions]) -> Object:
        """Delete an object if the preconditions hold; return its last state.

        An object with finalizers stays, with a deletionTimestamp. A pod on a node stays too, until deleted with ``grace_seconds=0``.
        """

    def delete_collection(self, resource: Resource, **options: Unpack[ListOptions]) -> Listing:
        """Delete all objects of a selection; return them."""

    def watch(
        self, resource: Resource, *, since: str, bookmarks: bool = False, timeout: float | None = None, **options: Unpack[ListOptions]
    ) -> Watch:
        """Return the changes after ``since``; unset or "0" begins with an ADDED event for each existing object.

        Where the history is lost, this raises GoneError, or the watch sends an ERROR event with code 410. A real server does
        either, so handle both. ``timeout`` is in seconds.
        """
