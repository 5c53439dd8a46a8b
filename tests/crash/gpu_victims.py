"""A parent that has everything imported and forks a process for every command, so that a kill costs no start of Python.

Commands come as JSON lines on standard input: ``directory`` (a node's whole world: machine, journal, locks, CDI files), ``machine`` (a path), ``act``
(``prepare`` or ``unprepare``), ``claim`` (its UID), ``device``, and ``step``: where the process kills itself by SIGKILL, counted from when it begins
to serve, or null. Where ``parameters`` are given, the claim has them; MPS daemons come from the driver root ``root``. A step comes before and after
every call to the hardware, every move of a daemon and every change of the journal and of the CDI directory. The answer is one line: how the
process ended, and what it told when it lived.
"""

import dataclasses
import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable
from typing import cast

from drakit.cdi import directory as cdi
from drakit.core import claim as claims
from drakit.core import names, outcome, ports, records
from drakit.devices import machines
from drakit.devices.gpu import driver as gpu_driver
from drakit.devices.gpu import marks, mock, mps, roots, sharing
from drakit.journal import journal, locks
from drakit.node import engine, offer, recovery
from fakes import claim_source, gpu_node, world

CHANGES = frozenset({"begin", "complete", "refresh", "withdraw", "forget", "write", "remove"})


class Stepping:
    """Passes every call on, and tells of the changes before and after they are made."""

    def __init__(self, target: object, step: Callable[[str], None]) -> None:
        self._target = target
        self._step = step

    def __getattr__(self, call: str) -> object:
        method = getattr(self._target, call)
        if call not in CHANGES:
            return method

        def passed(*args: object) -> object:
            self._step(f"before {call}")
            answer = method(*args)
            self._step(f"after {call}")
            return answer

        return passed


class Stepper:
    """Counts the steps of a life from when it begins to serve, and acts at one of them (None: at none) with the step's name."""

    def __init__(self, at: int | None = None, act: Callable[[str], None] = lambda _: None) -> None:
        self.passed = 0
        self.names: list[str] = []
        self._at = at
        self._act = act
        self._serves = False

    def begin(self) -> None:
        """The life begins to serve."""
        self._serves = True

    def __call__(self, name: str) -> None:
        if not self._serves:
            return
        self.passed, step = self.passed + 1, self.passed
        self.names.append(name)
        if step == self._at:
            self._act(name)


def killed(_name: str) -> None:
    """End this process as nothing in it can see coming."""
    os.kill(os.getpid(), signal.SIGKILL)


def choice(folder: pathlib.Path, machine: str) -> machines.Choice:
    """The mock machine of a world."""
    return machines.Choice(name=machine, directory=folder / "machine", owner=world.POOL)


def open_journal(folder: pathlib.Path, machine: str) -> journal.Journal:
    """The journal of a world."""
    boot = machines.boot_id(choice(folder, machine).directory)
    return journal.Journal.open(folder / "data", driver=gpu_driver.NAME, boot_id=boot)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteppingDaemons(mps.Daemons):
    """MPS daemons whose start and end are steps."""

    step: Callable[[str], None]

    def ensure(self, grant: str, device: str, wanted: sharing.Mps) -> None:
        self._stepped("ensure", lambda: super(SteppingDaemons, self).ensure(grant, device, wanted))

    def stop(self, grant: str) -> None:
        self._stepped("stop", lambda: super(SteppingDaemons, self).stop(grant))

    def _limit(self, folder: pathlib.Path, wanted: sharing.Mps) -> None:
        self._stepped("limit", lambda: super(SteppingDaemons, self)._limit(folder, wanted))

    def _end(self, folder: pathlib.Path) -> None:
        self._stepped("end", lambda: super(SteppingDaemons, self)._end(folder))

    def _stepped(self, name: str, act: Callable[[], None]) -> None:
        self.step(f"before {name}")
        act()
        self.step(f"after {name}")


def claim(uid: str, device: str, parameters: records.Record | None = None) -> claims.Claim:
    """An allocated claim for one device."""
    ref = claims.ClaimRef(uid=names.ClaimUid(uid), namespace="default", name=f"claim-{uid[:8]}")
    result = claims.AllocationResult(request="gpu", driver=gpu_driver.NAME, pool=world.POOL, device=device)
    if parameters is None:
        return claims.Claim(ref=ref, results=(result,))
    config = claims.OpaqueConfig(driver=gpu_driver.NAME, source=claims.ConfigSource.CLAIM, parameters=parameters)
    return claims.Claim(ref=ref, results=(result,), configs=(config,))


def serve(command: dict[str, str], stepper: Stepper) -> dict[str, object]:
    """One life of the driver: start, recover, one call of the kubelet's, end."""
    folder = pathlib.Path(command["directory"])
    parameters = json.loads(command.get("parameters", "null"))
    wanted = claim(command["claim"], command["device"], parameters)
    root = roots.DriverRoot(path=pathlib.Path(command.get("root", "/")))
    daemons = SteppingDaemons(home=folder / "mps", root=root, own_shm=False, step=stepper)
    with open_journal(folder, command["machine"]) as memory:
        author = gpu_driver.GpuDriver(
            gpu_node.stepping(mock.MockGpus(choice(folder, command["machine"])), stepper),
            intents=memory.intents,
            surroundings=gpu_driver.Surroundings(daemons=daemons, made=marks.Marks(folder=folder / "made")),
            pause=lambda _: None,
        )
        offered = offer.Offer(author)
        offered.refresh()
        files = cast("ports.CdiDirectory", Stepping(cdi.Directory(folder / "cdi", driver=gpu_driver.NAME), stepper))
        place = engine.Place(pool=world.POOL, boot_id=machines.boot_id(choice(folder, command["machine"]).directory))
        served = engine.Engine(
            author,
            place=place,
            offered=offered,
            claim_source=claim_source.FakeClaimSource(wanted),
            journal=cast("ports.Journal", Stepping(memory, stepper)),
            cdi=files,
            device_locks=locks.FileLocks(folder / "data"),
            locks_of_claims=locks.FileLocks(folder / "data", "claims", disposable=True),
        )
        recovery.recover(served, memory, files, sweep_orphans=True)
        stepper.begin()
        error = _call(served, wanted, command["act"])
    return {"error": error, "steps": stepper.passed}


def _call(served: engine.Engine, wanted: claims.Claim, act: str) -> str:
    if act == "unprepare":
        return served.unprepare([wanted.ref], world.Waiting())[wanted.ref.uid]
    answer: outcome.Outcome = served.prepare([wanted.ref], world.Waiting())[wanted.ref.uid]
    return answer.error


def fork(command: dict[str, str], step: int | None) -> dict[str, object]:
    """Serve in a process of its own; what it told, or the signal that ended it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            told = json.dumps(serve(command, Stepper(step, killed)))
        except Exception as error:  # noqa: BLE001 - told to the parent, which is the test
            told = json.dumps({"error": f"{type(error).__name__}: {error}", "steps": -1})
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read().decode()
    _, status = os.waitpid(pid, 0)
    return json.loads(told) if told else {"signal": os.WTERMSIG(status)}


def main() -> None:
    """Serve commands until the input ends."""
    # What a victim logs of its end is the test's to judge.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    for line in sys.stdin:
        command = json.loads(line)
        step = command.pop("step")
        os.write(1, f"{json.dumps(fork(command, step))}\n".encode())


if __name__ == "__main__":
    main()
