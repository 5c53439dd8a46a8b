"""A write on its way into the store, and who may stop it there."""

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

    ``orphan`` says that what a deleted object owns is to stay.
    """

    operation: Operation
    resource: Resource
    key: Key
    subresource: str = ""
    before: Entry | None = None
    new: Object | None = None
    orphan: bool = False


class Review:
    """The admission of one request's writes before they are stored; this one, for the cluster's own parts, admits everything."""

    dry_run: bool = False
    """Whether the request only asks what would happen."""

    def failures(self, _change: Change) -> list[Failure]:
        """Return what the writer may not change in this object; the store is locked."""
        return []

    def waits(self, _change: Change) -> bool:
        """Return whether :meth:`admit` asks others and takes its time; it is then called with the store open to other writers."""
        return False

    def admit(self, _change: Change) -> None:
        """Raise the ApiError of a refused write."""


TRUSTED = Review()
