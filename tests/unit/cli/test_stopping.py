"""Commands that run until they are told to stop are told by a thread, never by a signal's own code."""

import ast
import pathlib
import signal
import threading
from collections.abc import Iterator

import pytest

from drakit.cli import stopping

CLI = pathlib.Path(stopping.__file__).parent
# The demo's signals raise KeyboardInterrupt; it sets nothing. Ctrl-C ends the process by itself while the commands are imported.
ALLOWED = {"stopping.py", "demo/interruption.py", "__init__.py"}


class NotedEvent(threading.Event):
    """An event that knows which threads have set it."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[str] = []

    def set(self) -> None:
        self.by.append(threading.current_thread().name)
        super().set()


@pytest.fixture(params=[signal.SIGUSR1, signal.SIGUSR2], ids=str)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_the_first_signal_stops_and_a_second_does_nothing_more(number: signal.Signals) -> None:
    stop = NotedEvent()
    stopping.at_signals(stop, (number,))
    assert not stop.is_set()
    for _ in range(2):
        signal.raise_signal(number)
        assert stop.wait(60.0)
    assert stop.by == ["signals"], "the signal's own code runs in the main thread, and may interrupt it while it holds the event's lock"


def test_no_other_command_has_code_for_signals_of_its_own() -> None:
    found = set()
    for path in CLI.rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
        if any(ast.unparse(call) == "signal.signal" for call in calls):
            found.add(str(path.relative_to(CLI)))
    assert found == ALLOWED
