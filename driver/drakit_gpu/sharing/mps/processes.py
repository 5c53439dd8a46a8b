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
        with contextlib.suppress(OSError):
            return variable.encode() in (_PROC / str(self.pid) / "environ").read_bytes().split(b"\0")
        return False

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
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (process := Process.find(int(folder.name))) is not None and process.has_environment(variable):
            yield process
