"""A write before it is stored, and the review that may refuse it."""

import enum
from dataclasses import dataclass

from drakit_cluster.api.storage.store import Entry, Key
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.validation.failure import Failure


class Operation(enum.StrEnum):
    """The operation of a write, in admission's terms."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A write that is ready but not stored. ``before`` is None for a new object, ``new`` None for a deleted one.

    With ``orphan``, the objects that a deleted object owns stay. ``kind`` is the objects' group, version and kind where it is not the resource's.
    """

    operation: Operation
    resource: Resource
    key: Key
    subresource: str = ""
    before: Entry | None = None
    new: Object | None = None
    orphan: bool = False
    kind: tuple[str, str, str] | None = None


class Review:
    """The admission of one request's writes before they are stored. This class is for the cluster's own components and admits everything."""

    dry_run: bool = False
    """Whether the request is a dry run."""

    def failures(self, _change: Change) -> list[Failure]:
        """Return the changes of this object that the writer may not make; the store is locked."""
        return []

    def waits(self, _change: Change) -> bool:
        """Return whether :meth:`admit` waits for other servers; it is then called without the store's lock."""
        return False

    def admit(self, _change: Change) -> None:
        """Raise the ApiError of a refused write."""


TRUSTED = Review()
