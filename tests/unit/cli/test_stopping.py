"""Commands that run until they are told to stop are told by a thread, never by a signal's own code."""

import ast
import importlib.metadata
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

from drakit import exits
from drakit.cli import process
from fakes import forked_cli, waits

CLI = pathlib.Path(process.__file__).parent
# The demo's signals raise KeyboardInterrupt; it sets nothing.
ALLOWED = {"process.py"}


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


def test_further_signals_right_after_the_first_have_no_effect(number: signal.Signals) -> None:
    stop, ends = NotedEvent(), queue.SimpleQueue[int]()
    process.at_signals(stop, (number,), end=ends.put, now=lambda: 7.0)
    assert not stop.is_set()
    for _ in range(2):
        signal.raise_signal(number)
        assert stop.wait(waits.SECONDS)
    assert stop.by == ["signals"], "the signal's own code runs in the main thread, and may interrupt it while it holds the event's lock"
    assert ends.empty()


def test_a_later_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    stop, ends, times = NotedEvent(), queue.SimpleQueue[int](), iter([0.0, process.AGAIN_SECONDS])
    process.at_signals(stop, (number,), end=ends.put, now=lambda: next(times))
    for _ in range(2):
        signal.raise_signal(number)
    assert ends.get(timeout=waits.SECONDS) == 128 + number
    assert stop.by == ["signals"]


MISSED = """
import os, signal, sys, threading, time
from drakit import exits
from drakit.cli import process
stop = threading.Event()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
process.at_signals(stop)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
print(stop.wait(60))
"""


def test_a_signal_that_misses_the_main_thread_stops_the_process(commands: forked_cli.Commands) -> None:
    ended = commands.run("-c", MISSED, program="python")
    assert (ended.returncode, ended.stdout) == (0, "True\n")


HANGS = """
import concurrent.futures, sys, threading, time
from drakit import exits
from drakit.cli import process
def hangs_in_the_hardware():
    time.sleep(600)
stop = threading.Event()
process.bounded(stop, 0.2)
concurrent.futures.ThreadPoolExecutor(1).submit(hangs_in_the_hardware)
stop.set()
"""


def test_a_stop_that_hangs_is_ended_with_a_stack_trace(commands: forked_cli.Commands) -> None:
    ended = commands.run("-c", HANGS, program="python")
    assert ended.returncode == 1
    assert "in hangs_in_the_hardware" in ended.stderr


def test_a_driver_has_time_to_stop_before_its_pod_is_killed() -> None:
    manifest = yaml.load((CLI.parents[2] / "daemonset" / "base" / "daemonset.yaml").read_text(), Loader=yaml.CSafeLoader)
    assert manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= process.STOP_SECONDS + 5


def test_no_other_command_has_code_for_signals_of_its_own() -> None:
    found = set()
    for path in CLI.rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
        if any(ast.unparse(call) == "signal.signal" for call in calls):
            found.add(str(path.relative_to(CLI)))
    assert found == ALLOWED


INTERRUPTED = """
import os, signal, sys
sys.argv[0] = "drakit"
class Interrupts:
    "Sends SIGINT when the module with this name, or of this number, is looked for."
    seen = 0
    def find_spec(self, name, *_):
        self.seen += 1
        if {moment!r} in (name, self.seen):
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
import drakit_command
{before}
drakit_command.main()
"""
ONE_LINE = (130, "", "drakit: interrupted\n")


def interrupted(moment: str | int, *arguments: str, before: str = "") -> tuple[int, str, str]:
    program = INTERRUPTED.format(moment=moment, before=before)
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=waits.SECONDS, check=False)
    return (ended.returncode, ended.stdout, ended.stderr)


# The first three are what decides about interrupts; numbers are moments in half a second of imports.
@pytest.mark.parametrize(
    "moment", ["atexit", "contextlib", "threading", "drakit", "drakit.core.claim", "drakit.cli.app", "typer", "rich.console", 40, 160, 280]
)
def test_an_interrupt_while_the_command_is_imported_ends_in_one_line(moment: str | int) -> None:
    assert interrupted(moment, "--help") == ONE_LINE


def test_an_interrupt_while_a_command_imports_what_it_needs_ends_in_one_line() -> None:
    assert interrupted("drakit_tools.demo.story", "demo") == ONE_LINE


def at_exit(action: str) -> str:
    """Code that does something while the interpreter ends, after the command is done."""
    return f"import threading; threading._register_atexit(lambda: {action})"


def test_an_interrupt_while_the_interpreter_ends_is_one_line() -> None:
    status, out, err = interrupted("", "--version", before=at_exit("os.kill(os.getpid(), signal.SIGINT)"))
    assert (status, err) == (130, "drakit: interrupted\n")
    assert out in {"", f"{importlib.metadata.version('drakit')}\n"}


def test_an_interrupt_after_the_last_exit_handler_changes_nothing() -> None:
    late = "import atexit; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    assert interrupted("", "--version", before=late) == (0, f"{importlib.metadata.version('drakit')}\n", "")


def forked(commands: forked_cli.Commands, text: str, command: str) -> tuple[int, str, str]:
    """Run a command that a text adds to those of a program that is imported already."""
    program = f"""
import os, signal, sys
import drakit_command
from drakit.cli import app
sys.argv[0] = "drakit"
signal.signal(signal.SIGINT, signal.default_int_handler)  # As Python starts: drakit resets it in processes that it forks.
app.program.cache_clear()
{text}
drakit_command.main()
"""
    ended = commands.run("-c", program, command, program="python")
    return (ended.returncode, ended.stdout, ended.stderr)


LOSES = """
class Loses:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
@app.app.command()
def loses():
    Loses()
    print("went on")
"""


def test_an_interrupt_swallowed_by_a_finalizer_still_ends_the_command(commands: forked_cli.Commands) -> None:
    assert forked(commands, LOSES, "loses") == ONE_LINE


CONVERTS = """
@app.app.command()
def converts():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt as error:
        raise RuntimeError("broken") from error
"""


def test_an_interrupt_that_a_library_converts_to_an_error_is_one_line(commands: forked_cli.Commands) -> None:
    assert forked(commands, CONVERTS, "converts") == ONE_LINE


UNWINDS = """
@app.app.command()
def unwinds():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
"""


def test_a_second_interrupt_ends_a_command_that_does_not_stop(commands: forked_cli.Commands) -> None:
    assert forked(commands, UNWINDS, "unwinds") == ONE_LINE


def test_an_interrupted_command_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    program = typer.Typer()

    @program.command()
    def works() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        process.guarded(lambda: program([]), "fpga")
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "fpga: interrupted\n")


def test_a_command_reports_its_interruption_once(capsys: pytest.CaptureFixture[str]) -> None:
    program = typer.Typer()

    @program.command()
    def works() -> None:
        raise typer.Exit(exits.Exit.INTERRUPTED)

    with pytest.raises(SystemExit) as ended:
        process.guarded(lambda: program([]), "fpga")
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "")
