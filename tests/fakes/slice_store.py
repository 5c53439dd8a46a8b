"""``ports.SliceStore`` in memory, with the API server's rules for versions, and switches for what else a server does."""

import functools
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence

from drakit.core import errors, ports
from drakit.core.slices import resource_slice


def keep_all(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
    """What a server with every feature gate on stores: all of it."""
    return spec


class FakeSliceStore:
    """Slices of one driver on one node.

    ``stored_as`` is what the server keeps of a spec (a gate that is off drops fields). ``failures`` are raised by the next calls, one each.
    ``writes`` counts what was written. ``described`` is what the server says of itself.
    """

    def __init__(self, stored_as: Callable[[resource_slice.SliceSpec], resource_slice.SliceSpec] = keep_all) -> None:
        self.stored_as = stored_as
        self.failures: list[errors.ApiError] = []
        self.writes = 0
        self.described = ports.ApiServer(version="v1.36.2")
        self._slices: dict[str, resource_slice.Published] = {}
        self._versions = itertools.count(1)
        self._changed = threading.Condition()
        self._changes = 0

    def server(self) -> ports.ApiServer:
        return self.described

    def list(self) -> Sequence[resource_slice.Published]:
        with self._changed:
            self._fail()
            return list(self._slices.values())

    def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
        with self._changed:
            self._fail()
            name = f"{wanted.prefix}{uuid.uuid4().hex[:5]}"
            return self._store(resource_slice.Published(name=name, uid=str(uuid.uuid4()), version="", spec=wanted.spec))

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        with self._changed:
            self._fail()
            published = self._current(wanted.published)
            if published is None:
                raise errors.ApiError("the API server answered 404: no such slice", status=404, reason="NotFound")
            return self._store(resource_slice.Published(name=published.name, uid=published.uid, version="", spec=wanted.spec))

    def delete(self, published: resource_slice.Published) -> None:
        with self._changed:
            self._fail()
            if self._current(published) is not None:
                del self._slices[published.name]
                self._tell()

    def watch(self, stop: threading.Event) -> Iterator[None]:
        with self._changed:
            seen = self._changes
        yield
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(functools.partial(self._is_news, seen, stop), timeout=0.05)
                news, seen = self._changes - seen, self._changes
            for _ in range(news):
                yield

    def wipe(self) -> None:
        """Delete everything, as the kubelet does at its start."""
        with self._changed:
            self._slices.clear()
            self._tell()

    def edit(self, name: str, spec: resource_slice.SliceSpec) -> resource_slice.Published:
        """Change a slice as somebody else would."""
        with self._changed:
            found = self._slices[name]
            return self._store(resource_slice.Published(name=name, uid=found.uid, version="", spec=spec))

    def _is_news(self, seen: int, stop: threading.Event) -> bool:
        return self._changes != seen or stop.is_set()

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _current(self, published: resource_slice.Published) -> resource_slice.Published | None:
        found = self._slices.get(published.name)
        if found is not None and (found.uid, found.version) != (published.uid, published.version):
            raise errors.ApiError("the API server answered 409: the slice is another by now", status=409, reason="Conflict")
        return found

    def _store(self, published: resource_slice.Published) -> resource_slice.Published:
        stored = resource_slice.Published(
            name=published.name, uid=published.uid, version=str(next(self._versions)), spec=self.stored_as(published.spec)
        )
        self._slices[stored.name] = stored
        self.writes += 1
        self._tell()
        return stored

    def _tell(self) -> None:
        self._changes += 1
        self._changed.notify_all()
