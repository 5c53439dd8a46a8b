"""The demo as a newcomer runs it: a process of its own, in a pipe, as an ordinary user, interrupted, and with a driver that dies."""

import os
import pathlib
import re
import signal
import time
import urllib.request
from collections.abc import Iterator

import pytest

from fakes import demo, forked_cli, waits

PROMISES = [
    "gpu.drakit.dev: the API server has the 52 devices that the hardware offers",
    "nic.drakit.dev: the API server has the 2 devices that the hardware offers",
    "all four have the same parent GPU",
    "the hardware has four more GPU instances",
    "all three are on one NIC",
    "each has its own share ID",
    "consumed capacity is rounded up to the NIC's step",
    "the hardware has these three shares, at these rates",
    "it sees one GPU device, and none of the other containers'",
    "the MIG device of that UUID exists in the hardware",
    "the hardware has a GPU instance that no container uses",
    "no CDI file defines it",
    "the journal has its claim in the state preparing",
    "the 4 other pods keep running",
    "the hardware has one more GPU instance than before, not two",
    "the journal has exactly the claims that are allocated",
    "there is one CDI file for each allocated device",
]


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with demo.short_folder() as made:
        yield made


def driver_pids(text: str) -> list[int]:
    """The drivers that the demo said it started."""
    return [int(pid) for pid in re.findall(r"\(pid (\d+)\)", text)]


def test_an_ordinary_user_sees_it_keep_every_promise_and_can_use_it_until_ctrl_c(commands: forked_cli.Commands) -> None:
    """In a pipe it is plain text, drawn and counted; the next test runs the last chapter."""
    prefix, owner = demo.as_ordinary_user()
    with demo.short_folder(owner) as folder:
        with demo.running(folder, "demo", "--web", "--folder", str(folder / "demo"), prefix=prefix) as ran:
            page = ran.read_until(r"in a browser: (http://127\.0\.0\.1:\d+/)#")[1]
            kubeconfig = pathlib.Path(ran.read_until(r"export KUBECONFIG=(\S+)")[1])
            shown = ran.read_until(r"drakit (show .*)$")[1].split()
            ran.read_until("^The page:$")
            assert ran.read_until(r"^ +(http://\S+)#\S+$")[1] == page
            with urllib.request.urlopen(page, timeout=20) as answer:  # noqa: S310 - an address of 127.0.0.1
                assert "<title>" in answer.read().decode()
            assert kubeconfig.stat().st_mode & 0o777 == 0o600
            assert "gpu-0-counter-set: nothing more fits" in demo.finished(folder, *shown, commands=commands).stdout
            assert ran.end(signal.SIGINT) == 0
        left = [file for file in (folder / "demo").rglob("*") if not file.is_dir()]
        assert {file.stat().st_uid for file in left} == {owner}
        assert (folder / "demo" / "driver.log") in left, "a folder that was given is kept"
        assert not [file for file in left if file.is_socket() or file.suffix == ".kubeconfig"]
    kept = re.findall(r"^  ok  (.*)$", ran.out, re.MULTILINE)
    assert set(PROMISES) <= set(kept)
    assert re.search(rf"^All {len(kept)} checks held, in \d+\.\d s\.$", ran.out, re.MULTILINE)
    assert [int(number) for number in re.findall(r"^\[(\d)/4\] ", ran.out, re.MULTILINE)] == list(range(1, 5))
    assert len(driver_pids(ran.out)) == 2
    assert not any(map(demo.is_running, driver_pids(ran.out)))
    assert {char for char in ran.out if not char.isprintable()} == {"\n"}
    assert not re.search(r" $", ran.out, re.MULTILINE)
    assert re.search(r"^    \|( *(medium|small-a|small-b|large) *\|){4}$", ran.out, re.MULTILINE), "the four partitions fill the map"
    assert re.search(r"^    training +33333M +33340M +pci-0000-0c-00-0 +[0-9a-f-]{36}$", ran.out, re.MULTILINE)
    assert "GPU_DEVICE_MEDIUM_GPU_0_MIG_2G10GB_14_0=MIG-" in ran.out


def test_quiet_without_failures_it_writes_nothing_and_leaves_nothing_behind(folder: pathlib.Path, commands: forked_cli.Commands) -> None:
    ran = demo.finished(folder, "demo", "--quiet", commands=commands)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not list(folder.iterdir())


def test_a_driver_that_dies_by_itself_fails_the_demo_and_shows_its_log(folder: pathlib.Path, commands: forked_cli.Commands) -> None:
    with demo.running(folder, "demo", commands=commands) as ran:
        started = ran.read_until(r"\(pid (\d+)\)")
        ran.read_until(r"^\[2/5\]")
        os.kill(int(started[1]), signal.SIGKILL)
        assert ran.end() == 1
    assert "FAILED: the driver exited unexpectedly with status -9" in ran.out
    assert "The end of driver.log:" in ran.out
    assert "All " not in ran.out
    assert not list(folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.full) for one in (signal.SIGTERM, signal.SIGHUP))])
def test_interrupted_in_the_middle_it_stops_everything_it_started(
    folder: pathlib.Path, commands: forked_cli.Commands, number: signal.Signals
) -> None:
    with demo.running(folder, "demo", commands=commands) as ran:
        ran.read_until(r"^\[3/5\]")
        assert ran.end(number) == 130
    assert "Interrupted." in ran.out
    assert "Traceback" not in ran.out
    assert not any(map(demo.is_running, driver_pids(ran.out)))
    assert not list(folder.iterdir())


def test_a_demo_that_is_killed_leaves_no_driver_running(folder: pathlib.Path, commands: forked_cli.Commands) -> None:
    with demo.running(folder, "demo", commands=commands) as ran:
        ran.read_until(r"^\[2/5\]")
        assert ran.end(signal.SIGKILL) == -signal.SIGKILL
    deadline = time.monotonic() + waits.SECONDS
    while any(map(demo.is_running, driver_pids(ran.out))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert driver_pids(ran.out)
    assert not any(map(demo.is_running, driver_pids(ran.out)))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--folder", "/tmp"), "--folder: "),
        (("--folder", f"/tmp/{'x' * 80}"), f"--folder: folder /tmp/{'x' * 80}/node-1: its path has 92 bytes"),
        (("--folder", "/proc/x"), "--folder: cannot use /proc/x: "),
    ],
    ids=["folder of all", "folder too long", "folder that cannot be made"],
)
def test_what_cannot_begin_says_why_in_one_line(
    folder: pathlib.Path, commands: forked_cli.Commands, arguments: tuple[str, ...], message: str
) -> None:
    ran = demo.finished(folder, "demo", *arguments, commands=commands)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"drakit: {message}")
    assert ran.stderr.count("\n") == 1
    assert not list(folder.iterdir())


def test_a_folder_in_use_is_refused(folder: pathlib.Path, commands: forked_cli.Commands) -> None:
    (folder / "used").mkdir(mode=0o700)
    (folder / "used" / "file").touch()
    ran = demo.finished(folder, "demo", "--folder", str(folder / "used"), commands=commands)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"drakit: --folder: {folder / 'used'} is not empty, but the demo needs an empty folder; choose a new one\n"
