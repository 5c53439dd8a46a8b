"""A rolling update of the NIC driver: two processes with two versions of it serve one node, and pods start meanwhile.

The earlier version is a copy of the driver with another attach client, so the two put different programs on the host.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fakes import demo, forked_cli, nic_attach, waits

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

LIFE = pathlib.Path(__file__).with_name("nic_life.py")
DRIVER = LIFE.parents[2] / "driver"
COMPILE = "from drakit_nic.attach import hook_program; hook_program.program()"
OK = nic_attach.Said(0, "")
DAYS = 2 * 86400


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    with nic_attach.untouched_world() as made:
        yield made


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked_cli.Commands]:
    """The driver of this checkout."""
    yield from version(DRIVER)


def version(driver: pathlib.Path) -> Iterator[forked_cli.Commands]:
    """What starts processes of the driver in a folder."""
    with (
        demo.short_folder() as folder,
        contextlib.closing(forked_cli.ForkServer(folder, modules=("fakes.nic_attach",), paths=(driver,), before=COMPILE)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked_cli.Commands]:
    """The driver as an earlier version had it."""
    copy = tmp_path_factory.mktemp("earlier") / "driver"
    shutil.copytree(DRIVER, copy)  # with what is compiled, which the copy uses too
    source = copy / "attach" / "attach.c"
    source.write_text(f'{source.read_text()}\n__attribute__((used)) static const char version[] = "earlier";\n')
    yield from version(copy)


class Life:
    """A driver in a process of its own."""

    def __init__(self, running: forked_cli.Talk) -> None:
        self._running = running
        self.answered("serving")

    def ask(self, line: str) -> None:
        self._running.say(line)
        self.answered("done")

    def answered(self, word: str) -> None:
        assert self._running.stdout.readline().strip() == word

    def kill(self) -> None:
        self._running.kill()


@contextlib.contextmanager
def life(world: nic_attach.World, driver: forked_cli.Commands) -> Iterator[Life]:
    """A driver that serves; it ends as one that is told to, if nobody killed it before."""
    with driver.talk(str(LIFE), world.node.name, str(world.home.parent)) as running:
        yield Life(running)
        if (status := running.close()) not in {0, -signal.SIGKILL}:
            raise AssertionError(f"the driver ended with {status}")


def copies(world: nic_attach.World) -> set[str]:
    return {path.name for path in (world.home / "hook").glob("attach-*")}


def test_pods_start_before_during_and_after_and_each_claim_keeps_its_client(
    world: nic_attach.World, earlier: forked_cli.Commands, current: forked_cli.Commands
) -> None:
    first, second = (nic_attach.claim(number).ref for number in (1, 2))
    with nic_attach.pod("5a4d") as one, nic_attach.pod("6b5e") as two, nic_attach.pod("7c6f") as three:
        with contextlib.ExitStack() as both:
            old = both.enter_context(contextlib.ExitStack())
            before = old.enter_context(life(world, earlier))
            before.ask("prepare 1")
            (old_client,) = copies(world)
            assert world.call(first, one) == OK
            socket = (world.home / "attach.sock").stat().st_ino
            after = both.enter_context(life(world, current))
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
        with life(world, current) as later:
            assert copies(world) == {old_client, new_client}, "a CDI file names the old one"
            assert world.call(first, three, "restarted") == OK
            later.ask("unprepare 1")
        stamp = (world.home / "hook" / old_client).stat().st_mtime
        assert stamp
        with life(world, current):
            assert copies(world) == {new_client}, "nobody names the old one any more"
        assert set(one.space.links()) == set(two.space.links()) == set(three.space.links()) == {"lo"}


def test_where_the_new_instance_dies_the_old_one_serves_on(
    world: nic_attach.World, earlier: forked_cli.Commands, current: forked_cli.Commands
) -> None:
    ref = nic_attach.claim(1).ref
    with nic_attach.pod("5a4d") as one, life(world, earlier) as old:
        old.ask("prepare 1")
        with life(world, current) as new:
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


@pytest.mark.long
def test_a_running_pod_loses_no_packet(world: nic_attach.World, earlier: forked_cli.Commands, current: forked_cli.Commands) -> None:
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
            younger = new.enter_context(life(world, current))
            younger.ask("prepare 2")
        younger.ask("unprepare 2")
        sent, received = int(sender.communicate(timeout=waits.SECONDS)[0]), int(receiver.communicate(timeout=waits.SECONDS)[0])
        assert sent > 100
        assert received == sent
        world.node.ip("address", "delete", "10.77.0.1/24", "dev", "nic0-wire")
        younger.ask("unprepare 1")
