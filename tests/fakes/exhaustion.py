"""A process without free descriptors, or that cannot start threads, as on a node at its limits; and the check that a server leaves none behind."""

import contextlib
import os
import pathlib
import resource
import threading
import time
from collections.abc import Iterator

from fakes import waits

_STACK_TOO_LARGE = 1 << 47


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave no free descriptor to this process inside the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        lowest = os.open("/dev/null", os.O_RDONLY)
        stack.callback(os.close, lowest)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(lowest))
        yield


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """Let every start of a thread inside the block fail, because the kernel cannot map its stack."""
    former = threading.stack_size(_STACK_TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(former)


def _counts() -> tuple[int, int]:
    return threading.active_count(), sum(1 for _ in pathlib.Path("/proc/self/fd").iterdir())


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Wait after the block until this process has no more threads and descriptors than before it, and fail where that does not happen."""
    before = _counts()
    yield
    deadline = time.monotonic() + waits.SECONDS
    while any(now > then for now, then in zip(_counts(), before, strict=True)):
        assert time.monotonic() < deadline, (before, _counts(), [thread.name for thread in threading.enumerate()], _open_files())
        time.sleep(0.02)


def _open_files() -> list[str]:
    names = []
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(f"{entry.name} {entry.readlink()}")
    return names
