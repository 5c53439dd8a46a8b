"""Commands that run until they are told to stop are told by a thread, never by a signal's own code."""

import ast
import pathlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import typer
import yaml

from drakit.cli import process

CLI = pathlib.Path(process.__file__).parent
# The demo's signals raise KeyboardInterrupt; it sets nothing. Ctrl-C ends the process at once while the commands are imported.
ALLOWED = {"process.py", "__init__.py"}


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


def test_the_first_signal_stops_and_what_comes_with_it_does_nothing_more(number: signal.Signals) -> None:
    stop, ends = NotedEvent(), queue.SimpleQueue[int]()
    process.at_signals(stop, (number,), end=ends.put, now=lambda: 7.0)
    assert not stop.is_set()
    for _ in range(2):
        signal.raise_signal(number)
        assert stop.wait(60.0)
    assert stop.by == ["signals"], "the signal's own code runs in the main thread, and may interrupt it while it holds the event's lock"
    assert ends.empty()


def test_a_later_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    stop, ends, times = NotedEvent(), queue.SimpleQueue[int](), iter([0.0, process.AGAIN_SECONDS])
    process.at_signals(stop, (number,), end=ends.put, now=lambda: next(times))
    for _ in range(2):
        signal.raise_signal(number)
    assert ends.get(timeout=60.0) == 128 + number
    assert stop.by == ["signals"]


HANGS = """
import concurrent.futures, sys, threading, time
from drakit.cli import process
def hangs_in_the_hardware():
    time.sleep(600)
stop = threading.Event()
process.bounded(stop, 0.2)
concurrent.futures.ThreadPoolExecutor(1).submit(hangs_in_the_hardware)
stop.set()
"""


def test_a_stop_that_hangs_is_cut_off_and_says_where() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "in hangs_in_the_hardware" in ended.stderr


def test_a_driver_has_time_to_stop_before_its_pod_is_killed() -> None:
    manifest = yaml.safe_load((CLI.parents[2] / "daemonset" / "base" / "daemonset.yaml").read_text())
    assert manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= process.STOP_SECONDS + 5


def test_no_other_command_has_code_for_signals_of_its_own() -> None:
    found = set()
    for path in CLI.rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
        if any(ast.unparse(call) == "signal.signal" for call in calls):
            found.add(str(path.relative_to(CLI)))
    assert found == ALLOWED


INTERRUPTED_IMPORT = """
import os, signal, sys
from drakit import cli
class Interrupts:
    def find_spec(self, name, *_):
        if name == "drakit.cli.app":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
cli.main()
"""


def test_an_interrupt_while_commands_are_imported_ends_in_one_line() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "drakit: interrupted\n")


def test_an_interrupted_command_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    program = typer.Typer()

    @program.command()
    def works() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        process.guarded(lambda: program([]), "fpga")
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "fpga: interrupted\n")


def test_a_command_that_says_itself_that_it_was_interrupted_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    program = typer.Typer()

    @program.command()
    def works() -> None:
        raise typer.Exit(process.INTERRUPTED)

    with pytest.raises(SystemExit) as ended:
        process.guarded(lambda: program([]), "fpga")
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "")
