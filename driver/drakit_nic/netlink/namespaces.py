"""Network namespaces: opening one, and running a function in one.

The driver serves gRPC calls from threads, so it never forks to enter a namespace, as pyroute2 does. A thread of its own enters the namespace (setns)
and ends afterwards, so the other threads of the process stay where they are. A netlink socket that was opened there stays in that namespace,
whichever thread uses it. A namespace is given as None for the process's own, a name under /run/netns, a path, or an open descriptor.
"""

import contextlib
import ctypes
import functools
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

OWN = "/proc/self/ns/net"
"""The network namespace of the process."""
NAMED = pathlib.Path("/run/netns")
_CLONE_NEWNET = 0x40000000
Answer = TypeVar("Answer")


@contextlib.contextmanager
def opened(namespace: str | int) -> Iterator[int]:
    """Yield the descriptor of a namespace, and close it afterwards unless it was given. Raises OSError."""
    if isinstance(namespace, int):
        yield namespace
        return
    descriptor = os.open(NAMED / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def run_in(namespace: str | int | None, work: Callable[[], Answer]) -> Answer:
    """Return the result of ``work`` in a namespace. Raises OSError."""
    if namespace is None:
        return work()
    with opened(namespace) as descriptor:
        return _run_in_thread(lambda: _enter("setns", descriptor, _CLONE_NEWNET), work)


def run_in_new(work: Callable[[], Answer]) -> Answer:
    """Return the result of ``work`` in a new namespace, which the kernel removes when nothing uses it. Raises OSError."""
    return _run_in_thread(lambda: _enter("unshare", _CLONE_NEWNET), work)


def _run_in_thread(enter: Callable[[], None], work: Callable[[], Answer]) -> Answer:
    """Return the result of ``work`` in a thread that ends before this returns. An attach does it often, and an executor takes twice as long."""
    results: list[Answer] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            enter()
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="netns", daemon=True)
    thread.start()
    try:
        thread.join()
    finally:
        thread.join()  # A signal's exception must not leave a thread that uses what the caller closes.
    if failures:
        raise failures.pop()
    return results.pop()


def _enter(call: str, *arguments: int) -> None:
    """Enter a namespace by this call of libc, because Python has both only from 3.12 on. The thread must end afterwards, because it stays there."""
    if getattr(_libc(), call)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
