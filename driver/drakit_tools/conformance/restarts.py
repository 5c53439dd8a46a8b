"""Checks of a restarted driver. This process runs the driver's start command, or a command that restarts the driver."""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping

from drakit.testing import report as reports
from drakit_tools.conformance import calls, containers

COMMAND_SECONDS = 120.0
STOP_SECONDS = 30.0


class RestartError(Exception):
    """The driver could not be started or restarted, with the reason."""


class Restarter:
    """Kills and starts the driver. ``start`` is a command that runs as long as the driver does, ``restart`` one that ends, ``call`` a function."""

    def __init__(self, *, start: str = "", restart: str = "", call: Callable[[], None] | None = None) -> None:
        self._start, self._restart, self._call = shlex.split(start), shlex.split(restart), call
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def is_able(self) -> bool:
        """Whether there is a command."""
        return bool(self._start or self._restart or self._call)

    @property
    def has_started(self) -> bool:
        """Whether a process of the start command was started and not yet stopped."""
        return self._running is not None

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        """Start the driver if there is a start command, and stop it afterwards by SIGTERM."""
        try:
            if self._start:
                self._begin()
            yield
        finally:
            self._end(signal.SIGTERM)

    def ended(self, seconds: float = 0.0) -> str:
        """Return how the driver's process ended by itself within ``seconds``; empty while it runs, or if this object did not start it."""
        if self._running is None:
            return ""
        try:
            status = self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        return (
            f"the driver's process ended with status {status}" if status >= 0 else f"the driver's process was ended by {_signal(-status)}"
        )

    def restart(self) -> None:
        """Kill the driver by SIGKILL and start it, or let the command do so; raises RestartError."""
        if self._call is not None:
            self._call()
            return
        if self._start:
            self._end(signal.SIGKILL)
            self._begin()
            return
        try:
            subprocess.run(self._restart, check=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as error:
            raise RestartError(f"--restart: {error}") from error

    def _begin(self) -> None:
        try:
            # In a process group of its own, so that the children of a shell script are killed too.
            self._running = subprocess.Popen(self._start, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0)
        except OSError as error:
            raise RestartError(f"--start: {error}") from error

    def _end(self, number: signal.Signals) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        for sent in (number, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, sent)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(STOP_SECONDS)
                return


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def check(bench: calls.Bench, again: Callable[[], contextlib.AbstractContextManager[calls.Bench]]) -> Mapping[str, Callable[[], None]]:
    """Return the checks of a restart, to be called in order. ``again`` restarts the driver and gives its service."""

    def prepares() -> None:
        claims = bench.need()
        with calls.cleaned(bench):
            before = bench.prepared(*claims)
            with again() as restarted, calls.cleaned(restarted):
                for claim in claims:
                    after = restarted.prepared(claim)
                    calls.require_same(claim, before[claim.id.uid], after[claim.id.uid], "after a restart")
                    containers.require_resolved(bench.cdi, [after[claim.id.uid]])

    def unprepares() -> None:
        claims = bench.need()
        with calls.cleaned(bench):
            answers = bench.prepared(*claims)
            with again() as restarted:
                restarted.unprepare(*(claim.id for claim in claims))
                if bench.cdi is not None:
                    calls.require_removed(bench, claims, answers, "after unprepare in a new process")
                with calls.cleaned(restarted):
                    restarted.prepared(*claims)

    return {
        "restart: prepare returns the same result in a new process": prepares,
        "restart: unprepare succeeds in a new process, and prepare after it": unprepares,
    }


def unable() -> None:
    """Raise NotApplicableError: there is no way to restart the driver."""
    raise reports.NotApplicableError("the driver cannot be restarted without --start or --restart")
