"""The processes that tests start are gone after the test, and one that hangs says where."""

import pathlib
import signal
import sys

import pytest

from fakes import driver_process

SLEEPS = "import time; print('up', flush=True)\ndef sleeps_for_ever():\n    time.sleep(600)\nsleeps_for_ever()"
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


def is_gone(process: driver_process.Process) -> bool:
    return process.status is not None and not pathlib.Path(f"/proc/{process.pid}").exists()


def until_up(process: driver_process.Process) -> None:
    while "up" not in process.said():
        assert process.status is None


def test_a_process_that_does_not_end_is_killed_and_its_stacks_are_shown(tmp_path: pathlib.Path) -> None:
    process = driver_process.Process([sys.executable, "-c", IGNORES], tmp_path / "log", {})
    until_up(process)
    with pytest.raises(AssertionError, match=r"(?s)still running after 0.1 s.*up.*in sleeps_for_ever"):
        process.stop(seconds=0.1)
    assert is_gone(process)


def test_an_error_in_the_test_leaves_no_process(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match="the test"), driver_process.running([sys.executable, "-c", SLEEPS], tmp_path / "log") as process:
        raise RuntimeError("the test")
    assert is_gone(process)


def test_a_process_with_a_bad_exit_status_fails_the_test_with_its_log(tmp_path: pathlib.Path) -> None:
    refused = pytest.raises(AssertionError, match=rf"status -{signal.SIGTERM:d}:\nup")
    with refused, driver_process.running([sys.executable, "-c", SLEEPS], tmp_path / "log") as process:
        until_up(process)
    assert is_gone(process)
