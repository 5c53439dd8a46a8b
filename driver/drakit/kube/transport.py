"""The interface of a client of the API server, which the adapters of this package use; ``client.Client`` implements it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from drakit.core import records

JSON_TYPE = "application/json"
UNREADABLE = "Unreadable"
"""The reason of an ApiError for an answer, or an event of a watch, that is not JSON."""

Object = Mapping[str, records.Json]
Body = Object | Sequence[Object]
"""A request body: an object, or a JSON patch, which is a list of objects."""


class Stream(Protocol):
    """A running watch: one JSON object for each event, until the server ends it or ``close`` is called."""

    def __iter__(self) -> Iterator[Object]:
        """Yield events as they arrive. Raise ApiError when the connection breaks; after ``close`` end without an error."""

    def close(self) -> None:
        """End the iteration, also while another thread waits in it. Safe to call twice."""


class Transport(Protocol):
    """Requests to the API server. Every call has a time limit."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON_TYPE,
        timeout: float | None = None,
    ) -> Object:
        """Send one request and return the JSON object of the answer. Raise ApiError for any status but 2xx, and for no answer (status 0)."""

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> Stream:
        """Start a watch that ends after at most ``timeout`` seconds. Raise ApiError."""
