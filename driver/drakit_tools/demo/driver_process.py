"""The node driver as a separate process, which the demo can kill."""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

import rich.console

from drakit import settings
from drakit.cli import output
from drakit_tools.demo import stage

_GRACE_SECONDS = 5.0
_TAIL_LINES = 15


class DriverProcess:
    """A ``drakit`` command that can be started, killed and started again; its log is appended to one file.

    ``scratch`` is the folder of its temporary files, because a killed process cannot remove them.
    """

    def __init__(self, arguments: Sequence[str], log: pathlib.Path, scratch: pathlib.Path) -> None:
        self.log = log
        self._scratch = scratch
        self._arguments = (sys.executable, "-m", "drakit", *arguments)
        self._running: subprocess.Popen[bytes] | None = None
        self._marked = 0

    @property
    def pid(self) -> int:
        """Return the process ID, 0 if no process runs."""
        return self._running.pid if self._running else 0

    def start(self) -> None:
        """Start it in a new session, so that Ctrl-C on the terminal does not reach it. It stops when the demo's process ends."""
        self._marked = self.log.stat().st_size if self.log.exists() else 0
        self._scratch.mkdir(mode=0o700, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(settings.ENV_PREFIX)}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                (*self._arguments, "--stop-with-stdin"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=inherited | {"TMPDIR": str(self._scratch)},
                start_new_session=True,
            )

    def check_alive(self) -> None:
        """Raise DemoError if the process has exited."""
        status = None if self._running is None else self._running.poll()
        if status is not None:
            raise stage.DemoError(f"the driver exited unexpectedly with status {status}")

    def kill(self) -> int:
        """Kill it with SIGKILL and return the exit status, which is minus the signal's number."""
        if self._running is None:
            return 0
        running, self._running = self._running, None
        running.kill()
        return _ended(running)

    def stop(self) -> int:
        """Stop it with SIGTERM, after a timeout with SIGKILL; return the exit status, 0 if it is not running."""
        if self._running is None:
            return 0
        running, self._running = self._running, None
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
        return _ended(running)

    def lines(self) -> list[str]:
        """Return the log lines since its last start."""
        if not self.log.exists():
            return []
        return self.log.read_bytes()[self._marked :].decode(errors="replace").splitlines()


def _ended(running: "subprocess.Popen[bytes]") -> int:
    """Close its standard input, wait for its end and return the exit status."""
    if running.stdin is not None:
        running.stdin.close()
    return running.wait()


def print_tail(out: rich.console.Console, log: pathlib.Path) -> None:
    """Print the last lines of a log, if it exists."""
    lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if log.exists() else []
    if lines:
        out.print(f"\nThe end of {log.name}:", markup=False)
    for line in lines:
        output.say(out, line, indent=2, hang=2)
