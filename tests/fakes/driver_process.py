"""Processes of drakit that a test starts: gone afterwards, whatever became of the test, with evidence where one did not end by itself."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

from fakes import forked_cli, waits

DUMP_SECONDS = 10.0
TAIL = 60


def drakit(*words: str) -> list[str]:
    """The command line that runs drakit from this checkout."""
    return [sys.executable, "-m", "drakit", *words]


class Process:
    """A running command of drakit. What it writes on standard output and error goes to the file ``log``.

    It is forked by ``commands`` where these are given, and a program of its own otherwise.
    """

    def __init__(
        self, command: list[str], log: pathlib.Path, environment: Mapping[str, str], commands: forked_cli.Commands | None = None
    ) -> None:
        self.log = log
        self._command = command
        variables = {**os.environ, "PYTHONFAULTHANDLER": "1", **environment}
        self._running: forked_cli.Started | subprocess.Popen[bytes]
        with log.open("ab") as written:
            if commands is None:
                self._running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written, env=variables)
            else:
                words = command[len(drakit()) :]
                self._running = commands.start(*words, out=written.fileno(), folder=pathlib.Path.cwd(), environment=variables)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running.pid

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._running.poll()

    def said(self) -> str:
        """What it wrote so far."""
        return self.log.read_text("utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens where it has ended."""
        self._running.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        self._running.kill()
        self._running.wait()

    def wait(self, seconds: float = waits.SECONDS) -> int:
        """Wait for its end and return the exit status; where it still runs then, kill it and fail with its log and the stacks of its threads."""
        try:
            return self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            self._dump()
        raise AssertionError(f"still running after {seconds} s: {self._command}\n" + "\n".join(self.said().splitlines()[-TAIL:]))

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = waits.SECONDS) -> int:
        """Send a signal and wait for its end as ``wait`` does; returns the exit status."""
        self.send(number)
        return self.wait(seconds)

    def _dump(self) -> None:
        """Have Python write the stacks of all threads to the log, and make sure that the process is gone."""
        self._running.send_signal(signal.SIGABRT)
        try:
            self._running.wait(DUMP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def running(command: list[str], log: pathlib.Path, *, commands: forked_cli.Commands | None = None, **environment: str) -> Iterator[Process]:
    """A running command. One that still runs at the end is stopped by SIGTERM and must then end with status 0; after an error it is killed."""
    started = Process(command, log, environment, commands)
    try:
        yield started
    except BaseException:
        started.kill()
        raise
    if started.status is None:
        status = started.stop()
        assert status == 0, f"ended with status {status}:\n{started.said()}"
