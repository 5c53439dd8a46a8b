"""The node driver as a real process of its own, so that it can be killed as a kernel or an operator would kill it."""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

import rich.console

from drakit import settings
from drakit.cli import output
from drakit.cli.demo import stage

_GRACE_SECONDS = 5.0
_TAIL_LINES = 15


def command(*, machine: str, node: str, folder: pathlib.Path, kubeconfig: pathlib.Path) -> tuple[str, ...]:
    """The command that a person would type, as arguments; ``folder`` is the node's."""
    places = ("--folder", str(folder), "--kubeconfig", str(kubeconfig))
    return ("drakit", "run", "--mock", machine, "--node", node, *places)


class Child:
    """A ``drakit`` command that can be started, killed and started again; its log is appended to one file.

    ``scratch`` is where its temporary files go: a process that is killed cannot remove them.
    """

    def __init__(self, arguments: Sequence[str], log: pathlib.Path, scratch: pathlib.Path) -> None:
        self.log = log
        self._scratch = scratch
        self._arguments = (sys.executable, "-m", "drakit", *arguments[1:])
        self._running: subprocess.Popen[bytes] | None = None
        self._marked = 0

    @property
    def pid(self) -> int:
        """The process's id; 0 when none runs."""
        return self._running.pid if self._running else 0

    def start(self) -> None:
        """Start it, in a session of its own, so that Ctrl-C on the terminal reaches only us; it ends when we are gone, however we went."""
        self._marked = self.log.stat().st_size if self.log.exists() else 0
        self._scratch.mkdir(mode=0o700, exist_ok=True)
        environment = _environment() | {"TMPDIR": str(self._scratch)}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                (*self._arguments, "--stop-with-stdin"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def check_alive(self) -> None:
        """Raise DemoError when it ended by itself."""
        status = None if self._running is None else self._running.poll()
        if status is not None:
            raise stage.DemoError(f"the driver ended by itself with status {status}")

    def kill(self) -> int:
        """SIGKILL: no warning, no clean-up. Returns the exit status, which is minus the signal's number."""
        if self._running is None:
            return 0
        running, self._running = self._running, None
        running.kill()
        return _ended(running)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that is not enough; returns the exit status. Nothing to stop is fine."""
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
        """What it logged since it was last started."""
        if not self.log.exists():
            return []
        return self.log.read_bytes()[self._marked :].decode(errors="replace").splitlines()


def _ended(running: "subprocess.Popen[bytes]") -> int:
    """The exit status, and no descriptor left open."""
    if running.stdin is not None:
        running.stdin.close()
    return running.wait()


def print_tail(out: rich.console.Console, log: pathlib.Path) -> None:
    """Print the last lines of a log; nothing where there is no log."""
    lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if log.exists() else []
    if lines:
        out.print(f"\nThe end of {log.name}:", markup=False)
    for line in lines:
        output.say(out, line, indent=2, hang=2)


def _environment() -> dict[str, str]:
    """Ours, without settings meant for another driver."""
    return {name: value for name, value in os.environ.items() if not name.startswith(settings.ENV_PREFIX)}
