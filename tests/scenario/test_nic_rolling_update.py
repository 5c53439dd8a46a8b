"""A rolling update of the NIC driver: two processes with two versions of it serve one node, and pods start meanwhile.

The earlier version is a copy of the driver with another attach client, so the two put different programs on the host.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fakes import nic_attach, waits

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

LIFE = pathlib.Path(__file__).with_name("nic_life.py")
TESTS = LIFE.parents[1]
DRIVER = TESTS.parent / "driver"
OK = nic_attach.Said(0, "")
DAYS = 2 * 86400


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    with nic_attach.untouched_world() as made:
        yield made


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The driver's folder as an earlier version had it."""
    copy = tmp_path_factory.mktemp("earlier") / "driver"
    shutil.copytree(DRIVER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = copy / "attach" / "attach.c"
    source.write_text(f'{source.read_text()}\n__attribute__((used)) static const char version[] = "earlier";\n')
    return copy


class Life:
    """A driver in a process of its own."""

    def __init__(self, running: "subprocess.Popen[str]") -> None:
        self.running = running

    def ask(self, line: str) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{line}\n")
        self.running.stdin.flush()
        self.answered("done")

    def answered(self, word: str) -> None:
        assert self.running.stdout is not None
        assert self.running.stdout.readline().strip() == word

    def kill(self) -> None:
        self.running.kill()
        self.running.wait(waits.SECONDS)


@contextlib.contextmanager
def life(world: nic_attach.World, driver: pathlib.Path = DRIVER) -> Iterator[Life]:
    """A driver that serves; it ends as one that is told to, if nobody killed it before."""
    words = [sys.executable, str(LIFE), world.node.name, str(world.home.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(driver), str(TESTS)])}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        made = Life(running)
        made.answered("serving")
        yield made
        assert running.stdin is not None
        running.stdin.close()
        if running.wait(waits.SECONDS) not in {0, -9}:
            raise AssertionError(f"the driver ended with {running.returncode}")


def copies(world: nic_attach.World) -> set[str]:
    return {path.name for path in (world.home / "hook").glob("attach-*")}


def test_pods_start_before_during_and_after_and_each_claim_keeps_its_client(world: nic_attach.World, earlier: pathlib.Path) -> None:
    first, second = (nic_attach.claim(number).ref for number in (1, 2))
    with nic_attach.pod("5a4d") as one, nic_attach.pod("6b5e") as two, nic_attach.pod("7c6f") as three:
        with contextlib.ExitStack() as both:
            old = both.enter_context(contextlib.ExitStack())
            before = old.enter_context(life(world, earlier))
            before.ask("prepare 1")
            (old_client,) = copies(world)
            assert world.call(first, one) == OK
            socket = (world.home / "attach.sock").stat().st_ino
            after = both.enter_context(life(world))
            assert (world.home / "attach.sock").stat().st_ino != socket, "the new instance has taken the socket over"
            before.ask("prepare 2")
            assert world.call(second, two) == OK, "prepared by the old instance, attached by the new one"
            assert world.call(first, one, "restarted") == OK
            old.close()
            assert world.call(first, three) == OK, "the old instance is gone"
            after.ask("prepare 3")
            (new_client,) = copies(world) - {old_client}
            assert new_client in world.hooks(nic_attach.claim(3).ref)[0]["path"]
            assert old_client in world.hooks(first)[0]["path"]
            after.ask("unprepare 2")
            after.ask("unprepare 3")
        for name in copies(world):
            stamp = (world.home / "hook" / name).stat().st_mtime - DAYS
            os.utime(world.home / "hook" / name, (stamp, stamp))
        with life(world) as later:
            assert copies(world) == {old_client, new_client}, "a CDI file names the old one"
            assert world.call(first, three, "restarted") == OK
            later.ask("unprepare 1")
        stamp = (world.home / "hook" / old_client).stat().st_mtime
        assert stamp
        with life(world):
            assert copies(world) == {new_client}, "nobody names the old one any more"
        assert set(one.space.links()) == set(two.space.links()) == set(three.space.links()) == {"lo"}


def test_where_the_new_instance_dies_the_old_one_serves_on(world: nic_attach.World, earlier: pathlib.Path) -> None:
    ref = nic_attach.claim(1).ref
    with nic_attach.pod("5a4d") as one, life(world, earlier) as old:
        old.ask("prepare 1")
        with life(world) as new:
            new.kill()
        assert world.call(ref, one) == OK, "within the time that the client waits for a driver"
        old.ask("unprepare 1")


SENDER = """
import socket, sys, time
out, count, at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0, time.monotonic()
while time.monotonic() < at + float(sys.argv[1]):
    out.sendto(b"x" * 200, ("10.77.0.1", 9000))
    count += 1
    time.sleep(0.002)
print(count)
"""
RECEIVER = """
import socket
into, count = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
into.bind(("10.77.0.1", 9000))
print("listening", flush=True)
into.settimeout(3)
try:
    into.recv(512)
    count = 1
    while True:
        into.recv(512)
        count += 1
except TimeoutError:
    print(count)
"""


def test_a_running_pod_loses_no_packet(world: nic_attach.World, earlier: pathlib.Path) -> None:
    def within(space: str, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(["ip", "netns", "exec", space, sys.executable, "-c", *words], stdout=subprocess.PIPE, text=True)

    ref = nic_attach.claim(1).ref
    with nic_attach.pod("5a4d") as one, contextlib.ExitStack() as new:
        with life(world, earlier) as old:
            old.ask("prepare 1")
            assert world.call(ref, one) == OK
            (interface,) = set(one.space.links()) - {"lo"}
            world.node.ip("address", "add", "10.77.0.1/24", "dev", "nic0-wire")
            one.space.ip("address", "add", "10.77.0.2/24", "dev", interface)
            receiver = within(world.node.name, RECEIVER)
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "listening\n"
            sender = within(one.space.name, SENDER, "6")
            younger = new.enter_context(life(world))
            younger.ask("prepare 2")
        younger.ask("unprepare 2")
        sent, received = int(sender.communicate(timeout=waits.SECONDS)[0]), int(receiver.communicate(timeout=waits.SECONDS)[0])
        assert sent > 100
        assert received == sent
        world.node.ip("address", "delete", "10.77.0.1/24", "dev", "nic0-wire")
        younger.ask("unprepare 1")
