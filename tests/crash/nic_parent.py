"""The process that forks NIC drivers which die at a step; see ``killable_nic_driver``."""

import contextlib
import json
import pathlib
import signal
from collections.abc import Iterator

from fakes import forked_cli

VICTIM = pathlib.Path(__file__).with_name("killable_nic_driver.py")


class Parent:
    """Asks for lives; made by ``parent``."""

    def __init__(self, running: forked_cli.Talk) -> None:
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
        answer: dict[str, int] = json.loads(self._running.ask(json.dumps({**command, "step": step})))
        return answer


@contextlib.contextmanager
def parent(commands: forked_cli.Commands) -> Iterator[Parent]:
    """A parent, for as many lives as one likes."""
    with commands.talk(str(VICTIM)) as running:
        yield Parent(running)
