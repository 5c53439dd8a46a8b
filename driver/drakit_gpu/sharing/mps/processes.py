"""The processes of an MPS daemon, found by the folder in their environment.

A process is identified by pid and start time, because pids are reused (proc(5), stat field 22). A process that has ended and is not yet reaped (a
zombie) counts as gone. In the daemon's pod, /proc shows the pod's processes alone.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
from collections.abc import Iterator

_PROC = pathlib.Path("/proc")
_STATE, _START = 0, 19  # fields after the name, counted from 0
_ENDED = frozenset("ZX")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Process:
    """A pid and its start time in ticks since boot."""

    pid: int
    start: int

    @classmethod
    def find(cls, pid: int) -> "Process | None":
        """Return the living process of a pid, or None."""
        try:
            text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return None if fields[_STATE] in _ENDED else cls(pid=pid, start=int(fields[_START]))

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return Process.find(self.pid) == self

    def has_environment(self, variable: str) -> bool:
        """Return whether the process started with this ``NAME=value`` in its environment; False where that cannot be read."""
        return _has_environment(self.pid, variable.encode())

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def with_environment(variable: str) -> Iterator[Process]:
    """Return all living processes that started with this ``NAME=value`` in their environment."""
    encoded = variable.encode()
    for pid in map(int, filter(str.isdigit, os.listdir(_PROC))):  # noqa: PTH208 - names only
        # Most processes are others, and their state is not read. The pid may have a new process since, so the environment is read again.
        if _has_environment(pid, encoded) and (process := Process.find(pid)) is not None and _has_environment(pid, encoded):
            yield process


def _has_environment(pid: int, variable: bytes) -> bool:
    try:
        with open(f"{_PROC}/{pid}/environ", "rb", buffering=0) as stream:  # noqa: PTH123 - a path object would cost as much as the call
            content = stream.read()
    except OSError:
        return False
    return variable in content and variable in content.split(b"\0")
