"""The process that forks NIC drivers which die at a step; see ``killable_nic_driver``."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

VICTIM = pathlib.Path(__file__).with_name("killable_nic_driver.py")


class Parent:
    """Asks for lives; made by ``parent``."""

    def __init__(self, running: "subprocess.Popen[str]") -> None:
        self._running = running

    def steps(self, **command: str) -> int:
        """A life that nothing interrupts; how many steps it has."""
        result = self._ask(command, None)
        assert result["code"] == 0, "the driver says why on standard error"
        return result["steps"]

    def kill(self, step: int, **command: str) -> None:
        """A life that ends at a step."""
        assert self._ask(command, step)["code"] == -signal.SIGKILL

    def _ask(self, command: dict[str, str], step: int | None) -> dict[str, int]:
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        self._running.stdin.write(json.dumps({**command, "step": step}) + "\n")
        self._running.stdin.flush()
        answer: dict[str, int] = json.loads(self._running.stdout.readline())
        return answer


@contextlib.contextmanager
def parent() -> Iterator[Parent]:
    """A parent, for as many lives as one likes."""
    path = os.pathsep.join([str(VICTIM.parents[1]), *sys.path])
    words = [sys.executable, str(VICTIM)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as running:
        yield Parent(running)
        assert running.stdin is not None
        running.stdin.close()
