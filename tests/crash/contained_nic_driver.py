"""NIC drivers in processes that see no namespace but their own, as in a container without host mounts; each dies, or fails, where it is told to.

A driver works in the NIC's network namespace. Its mount and process namespaces are its own, without /run/netns and with a /proc of itself alone, so
no sandbox can be entered but through a descriptor that a hook brings. ``Secluded`` talks to it over a socket, a line of JSON each way. The file
is also the program that forks drivers, so that a life costs no import.
"""

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import pathlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import pyroute2  # noqa: F401 - loaded before the first fork

from crash import killable_nic_driver
from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit.node import driver_context
from drakit_nic.attach import hook_program
from fakes import forked_cli, nic_attach, waits

_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2
PARAMETERS: records.Record = {
    "interfaceName": "fast0",
    "mtu": 1400,
    "addresses": ["10.99.1.2/16"],
    "routes": [{"destination": "10.61.0.0/16"}, {"destination": "10.62.0.0/16", "gateway": "10.99.0.1"}],
    "rules": [{"priority": 1000, "table": 100, "source": "10.99.1.2/32"}],
    "neighbours": [{"address": "10.99.0.1", "mac": "02:bb:00:00:00:09"}],
}
"""All that a claim may ask of its interface, each a step of the attach."""
_KILLED = 9


class Faults:
    """Counts what an attach does to the kernel and to its notes, fails after one step, and kills this process after one."""

    def __init__(self) -> None:
        self.arm()

    def arm(self, *, fail: int = 0, kill: int = 0) -> None:
        self.passed, self._fail, self._kill = 0, fail, kill

    def __call__(self, error: Callable[[], Exception] = lambda: OSError(5, "made to fail")) -> None:
        if not threading.current_thread().name.startswith("nic-attach-call"):
            return
        self.passed += 1
        if self.passed == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.passed == self._fail:
            raise error()


class FaultySite:
    """The node's context, whose notes are steps: each is written, and then fails or is the last thing that happens."""

    def __init__(self, context: driver_context.NodeDriverContext, faults: Faults) -> None:
        self._context, self._faults = context, faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def set_state(self, grant: drivers.Grant[object], key: str, record: records.Record | None) -> None:
        self._context.set_state(grant, key, record)
        self._faults(lambda: errors.JournalError("made to fail"))


class ContainedDriver:
    """One life of a driver, as its test knows it."""

    def __init__(self, talk: socket.socket) -> None:
        self._file = talk.makefile("rw")
        assert self._ask("hello") == "hello"

    def prepare(self) -> str:
        return str(self._ask("prepare"))

    def unprepare(self) -> str:
        return str(self._ask("unprepare"))

    def arm(self, *, fail: int = 0, kill: int = 0) -> None:
        self._ask("arm", fail=fail, kill=kill)

    def passed(self) -> int:
        found = self._ask("passed")
        assert isinstance(found, int)
        return found

    def end(self) -> None:
        """End it as SIGTERM does; one that is dead already is fine."""
        with contextlib.suppress(OSError, AssertionError):
            self._ask("end")
        with contextlib.suppress(OSError):
            self._file.close()

    def _ask(self, act: str, **more: int) -> object:
        self._file.write(json.dumps({"act": act, **more}) + "\n")
        self._file.flush()
        line = self._file.readline()
        assert line, "the driver is gone"
        return json.loads(line)


class Forker:
    """Starts lives; made by ``forker``."""

    def __init__(self, running: forked_cli.Talk) -> None:
        self._running = running

    @contextlib.contextmanager
    def life(self, world: nic_attach.World) -> Iterator[ContainedDriver]:
        """A driver of this world, with one claim for its whole NIC in mind."""
        path = world.home.parent / "talk.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(1)
            listening.settimeout(waits.SECONDS)
            self._running.say(json.dumps({"node": world.node.name, "folder": str(world.home.parent)}))
            talk, _ = listening.accept()
        with talk:
            talk.settimeout(waits.SECONDS)
            made = ContainedDriver(talk)
            try:
                yield made
            finally:
                made.end()
                assert self._running.stdout.readline().strip() in {"0", str(_KILLED)}, "the driver says why on standard error"


@contextlib.contextmanager
def forker(commands: forked_cli.Commands) -> Iterator[Forker]:
    """A process that forks drivers."""
    with commands.talk(__file__) as running:
        yield Forker(running)


def serve(talk: socket.socket, node: str, folder: pathlib.Path) -> None:
    """One life: do what is asked for until the end."""
    world, faults = killable_nic_driver.world_of(node, folder), Faults()
    wanted = dataclasses.replace(killable_nic_driver.claim_of("whole"), configs=nic_attach.claim(1, parameters=PARAMETERS).configs)
    world.source.put(wanted)
    world.namespace = None
    with world.driver(step=faults, start=False) as running, talk.makefile("rw") as file:
        running.local.author.start(FaultySite(running.local.context, faults))  # type: ignore[arg-type] # It passes all on.
        try:
            for line in file:
                asked = json.loads(line)
                act = asked.pop("act")
                answers: dict[str, Callable[[], object]] = {
                    "hello": lambda: "hello",
                    "prepare": lambda: killable_nic_driver.call(running.local, "prepare", wanted),
                    "unprepare": lambda: killable_nic_driver.call(running.local, "unprepare", wanted),
                    "arm": lambda asked=asked: faults.arm(**asked),  # type: ignore[misc]
                    "passed": lambda: faults.passed,
                    "end": lambda: "end",
                }
                file.write(json.dumps(answers[act]()) + "\n")
                file.flush()
                if act == "end":
                    return
        finally:
            running.local.author.stop()


def seclude(node: str) -> None:
    """Enter the node's network namespace, and see no other one from here on; children are in a process namespace of their own."""
    with pathlib.Path("/run/netns", node).open("rb") as space:
        _call("setns", space.fileno(), _CLONE_NEWNET)
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWPID)
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    while _call_quietly("umount2", b"/run/netns", _MNT_DETACH):
        pass  # Nested mounts go with it; what is mounted over it several times is taken away as often.


def _call(name: str, *arguments: object) -> None:
    if not _call_quietly(name, *arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _call_quietly(name: str, *arguments: object) -> bool:
    return bool(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == 0)


def fork(asked: dict[str, str]) -> int:
    """Run one life; how it ended."""
    outer = os.fork()
    if outer:
        return abs(os.waitstatus_to_exitcode(os.waitpid(outer, 0)[1]))
    try:
        talk = socket.socket(socket.AF_UNIX)
        talk.connect(str(pathlib.Path(asked["folder"]) / "talk.sock"))
        seclude(asked["node"])
        first = os.fork()
        if first:
            talk.close()
            os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])))
        _call("mount", b"proc", b"/proc", b"proc", 0, None)
        driver = os.fork()
        if driver:
            talk.close()
            os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])))
        serve(talk, asked["node"], pathlib.Path(asked["folder"]))
        os._exit(0)
    except BaseException:  # noqa: BLE001 - told to whoever reads the test's output
        import traceback

        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    hook_program.program()
    gc.freeze()  # A life does not go through what was imported.
    for line in sys.stdin:
        print(fork(json.loads(line)), flush=True)  # noqa: T201 - the answer
