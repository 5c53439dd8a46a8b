"""A connection to an API server whose answers a test gives; what was sent is kept."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from drakit.kube import transport

Answer = transport.Object | Exception


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it was sent."""

    method: str
    path: str
    query: Mapping[str, str] | None
    body: transport.Object | None


def no_watch(path: str, query: Mapping[str, str]) -> transport.Stream:
    """Refuse a watch that a test does not expect."""
    raise AssertionError(f"unexpected watch of {path} with {dict(query)}")


class FakeTransport:
    """A transport that answers each request by calling ``answer``, and each watch by calling ``watch``. An exception that is returned is raised."""

    def __init__(self, answer: Callable[[Request], Answer], watch: Callable[[str, Mapping[str, str]], transport.Stream] = no_watch) -> None:
        self._answer, self._watch = answer, watch
        self.requests: list[Request] = []

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: transport.Body | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        assert not isinstance(body, Sequence), f"unexpected JSON patch of {path}"
        self.requests.append(Request(method=method, path=path, query=query, body=body))
        answer = self._answer(self.requests[-1])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> transport.Stream:
        return self._watch(path, query)
