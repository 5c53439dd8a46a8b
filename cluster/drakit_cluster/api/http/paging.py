"""Lists in pages: the pages of one list all show the same moment, because the rest of the list is kept until asked for.

At most ``MAX_OPEN`` lists are kept; older ones answer 410, after which a client lists again from the start.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from drakit_cluster.api.storage.store import Entry
from drakit_cluster.objects import errors

MAX_OPEN = 32


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of a list, the version of the whole, and the token of what follows (empty at the end)."""

    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int = 0


class Pages:
    """The lists that clients have read in part. Used by one thread only: the server's."""

    def __init__(self) -> None:
        self._rest: OrderedDict[str, tuple[list[Entry], int]] = OrderedDict()

    def first(self, entries: list[Entry], version: int, limit: int) -> Page:
        """Return the first page of at most ``limit`` entries (0: all)."""
        if not limit or len(entries) <= limit:
            return Page(entries=entries, version=version)
        token, rest = secrets.token_urlsafe(12), entries[limit:]
        self._rest[token] = (rest, version)
        if len(self._rest) > MAX_OPEN:
            self._rest.popitem(last=False)
        return Page(entries=entries[:limit], version=version, token=token, remaining=len(rest))

    def following(self, token: str, limit: int) -> Page:
        """Return the page after ``token``; GoneError for a token that is unknown, or too old."""
        if token not in self._rest:
            raise errors.GoneError(
                "The provided continue parameter is too old to display a consistent list result. Start a new list without it."
            )
        entries, version = self._rest[token]
        return self.first(entries, version, limit)
