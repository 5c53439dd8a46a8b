"""What a test of a server leaves behind: threads and open descriptors."""

import contextlib
import gc
import pathlib
import threading
import time
from collections.abc import Iterator

from fakes import waits

_SHARED = "anon_inode:"
"""epoll and eventfd descriptors, which gRPC makes once for a process and keeps."""

_ENDING_SECONDS = 0.5
"""How long threads and descriptors may take to end by themselves, before garbage is collected: that takes half a second in a long test run."""


class Leftovers:
    """The threads and descriptors of this process that were not there when this object was made."""

    def __init__(self) -> None:
        self._threads, self._descriptors = _threads(), _descriptors()

    def names(self) -> list[str]:
        """Return the name of each new thread, and the number and target of each new descriptor."""
        left = [f"thread {thread.name}" for thread in _threads() - self._threads]
        return left + [f"descriptor {number}: {target}" for number, target in sorted(_descriptors() - self._descriptors)]


@contextlib.contextmanager
def none() -> Iterator[None]:
    """Fail where the body leaves a thread or a descriptor. Those that end soon after it count as ended."""
    leftovers = Leftovers()
    yield
    patience = time.monotonic() + _ENDING_SECONDS

    def gone() -> bool:
        if leftovers.names() and time.monotonic() > patience:
            gc.collect()
        return not leftovers.names()

    assert waits.eventually(gone), leftovers.names()


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _descriptors() -> set[tuple[int, str]]:
    found = set[tuple[int, str]]()
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            target = str(entry.readlink())
            if not target.startswith(_SHARED):
                found.add((int(entry.name), target))
    return found
