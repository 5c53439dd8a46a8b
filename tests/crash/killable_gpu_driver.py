"""A parent that has everything imported and forks a process for every life, so that a kill costs no start of Python.

Lives come as JSON lines on standard input (see ``Life``), with ``at``: the step at which the process kills itself by SIGKILL, counted from when it
begins to serve, or null. A step comes before and after every call to the hardware, every move of a daemon and every change of the journal and of the
CDI directory; of a life that is ``by_line``, at every line of the files that keep daemons and marks, when it is first reached. With ``falls`` set to
``daemons``, it is the MPS daemons of the world that are killed there, and the life goes on. The answer is one line:
how the process ended, and what it told when it lived.
"""

import dataclasses
import gc
import json
import os
import pathlib
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, cast

from drakit import machines
from drakit.cdi import directory as cdi
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import names, ports, quantity, records
from drakit.journal import journal, locks
from drakit.node import driver_context, engine, inventory_cache, recovery, timing
from drakit_gpu import driver as gpu_driver
from drakit_gpu import driver_root, identity, share_policy
from drakit_gpu.inventory import discovery
from drakit_gpu.mig import instances, markers
from drakit_gpu.mock import machine, mock_gpus
from drakit_gpu.sharing.mps import daemon_folder, pod_daemons
from fakes import claim_source, crash_node, gpu_node, mps_pods

UID = "11111111-2222-3333-4444-555555555555"
TERMS = share_policy.SharePolicy(memory=True, number=4, partitions=True)
CHANGES = frozenset({"begin", "complete", "refresh", "begin_unprepare", "finish_unprepare", "write", "remove"})
BY_LINE = (pod_daemons.__file__, daemon_folder.__file__, instances.__file__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wants:
    """What a claim was allocated. With a ``share`` (its id) the device is a shared one; ``parameters`` are JSON, written by the class."""

    device: str
    uid: str = UID
    share: str = ""
    memory: str = ""
    parameters: str = ""

    def claim(self) -> claims.Claim:
        ref = claims.ClaimRef(uid=names.ClaimUid(self.uid), namespace="default", name=f"claim-{self.uid[:8]}")
        result = claims.AllocationResult(
            request="gpu",
            driver=gpu_driver.NAME,
            pool=crash_node.POOL,
            device=self.device,
            share_id=names.ShareId(self.share) if self.share else None,
            consumed_capacity={"memory": quantity.Quantity.parse(self.memory)} if self.memory else {},
        )
        if not self.parameters:
            return claims.Claim(ref=ref, results=(result,))
        parameters = records.freeze_record(json.loads(self.parameters))
        config = claims.OpaqueConfig(driver=gpu_driver.NAME, source=claims.ConfigSource.CLASS, parameters=parameters)
        return claims.Claim(ref=ref, results=(result,), configs=(config,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Life:
    """One life of the driver: start, recover, one call of the kubelet's, end.

    ``directory`` has a node's whole world (machine, journal, locks, CDI files, daemons), ``machine`` is a file, ``root`` where MPS comes from,
    ``kubelet`` the socket of what runs its daemons' pods.
    ``act`` is ``prepare`` or ``unprepare``, for the claim that ``wants``, or ``start``: then the life serves from its beginning and nobody calls.
    """

    directory: str
    machine: str
    act: str
    wants: Wants
    root: str = "/"
    kubelet: str = ""
    by_line: bool = False
    falls: str = "itself"

    @classmethod
    def from_json(cls, reported: dict[str, Any]) -> "Life":
        return cls(**{**reported, "wants": Wants(**reported["wants"])})

    @property
    def folder(self) -> pathlib.Path:
        return pathlib.Path(self.directory)

    @property
    def choice(self) -> machines.Choice:
        return choice(self.folder, self.machine)


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


class LineStepper(Stepper):
    """Its steps are the lines of some files, each when it is reached for the first time."""

    def __init__(self, at: int | None = None, act: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(at, act)
        self._seen: set[str] = set()

    def begin(self) -> None:
        super().begin()
        sys.settrace(self._call)

    def __call__(self, name: str) -> None:
        """Other steps do not count."""

    def _call(self, frame: types.FrameType, _event: str, _argument: object) -> Any:
        return self._line if frame.f_code.co_filename in BY_LINE else None

    def _line(self, frame: types.FrameType, event: str, _argument: object) -> Any:
        place = f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        if event == "line" and place not in self._seen:
            self._seen.add(place)
            super().__call__(place)
        return self._line


def killed(_name: str) -> None:
    """End this process as nothing in it can see coming."""
    os.kill(os.getpid(), signal.SIGKILL)


def choice(folder: pathlib.Path, machine: str) -> machines.Choice:
    """The mock machine of a world."""
    return machines.Choice(name=machine, directory=folder / "machine", owner=crash_node.POOL)


def open_journal(folder: pathlib.Path, machine: str) -> journal.Journal:
    """The journal of a world."""
    boot = machines.boot_id(choice(folder, machine).directory)
    return journal.Journal.open(folder / "data", driver=gpu_driver.NAME, boot_id=boot)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteppingDaemons(pod_daemons.PodDaemons):
    """MPS daemons whose start and end are steps."""

    step: Callable[[str], None]

    def ensure(self, grant: str, device: str, wanted: identity.Mps, *, claim: str = "") -> None:
        self._stepped("ensure", lambda: super(SteppingDaemons, self).ensure(grant, device, wanted, claim=claim))

    def stop(self, grant: str) -> None:
        self._stepped("stop", lambda: super(SteppingDaemons, self).stop(grant))

    def check(self, grant: str) -> None:
        self._stepped("check", lambda: super(SteppingDaemons, self).check(grant))

    def _stepped(self, name: str, act: Callable[[], None]) -> None:
        self.step(f"before {name}")
        act()
        self.step(f"after {name}")


def author_of(life: Life, memory: journal.Journal, stepper: Stepper) -> gpu_driver.GpuDriver:
    """The driver of a life."""
    daemons = SteppingDaemons(
        pods=mps_pods.RemotePods(address=pathlib.Path(life.kubelet)) if life.kubelet else None,
        home=life.folder / "mps",
        root=driver_root.DriverRoot(path=pathlib.Path(life.root)),
        own_shm=False,
        stop_seconds=0.5,
        step=stepper,
    )
    return gpu_driver.GpuDriver(
        gpu_node.stepping(mock_gpus.MockGpus(life.choice), stepper),
        intents=memory.intents,
        options=discovery.DiscoveryOptions(terms=TERMS if life.wants.share else share_policy.NOT_SHARED),
        resources=gpu_driver.HostResources(daemons=daemons, made=markers.MarkerStore(folder=life.folder / "made")),
        pause=lambda _: None,
    )


def offered(life: Life) -> inventory_cache.InventoryCache:
    """What a driver that starts in this world offers."""
    with open_journal(life.folder, life.machine) as memory:
        found = inventory_cache.InventoryCache(author_of(life, memory, Stepper()))
        found.refresh()
    return found


def serve(life: Life, stepper: Stepper, known: inventory_cache.InventoryCache | None = None) -> dict[str, object]:
    """Live a life; return the error that the kubelet was told, and the names of the steps.

    With ``known``, what an equal world offers is not discovered once more, which is most of what a life costs.
    """
    with open_journal(life.folder, life.machine) as memory:
        author = author_of(life, memory, stepper)
        journaled = cast("journal.Journal", Stepping(memory, stepper))
        files = cast("ports.CdiDirectory", Stepping(cdi.Directory(life.folder / "cdi", driver=gpu_driver.NAME), stepper))
        boot, device_locks = machines.boot_id(life.choice.directory), locks.FileLocks(life.folder / "data")
        if life.act == "start":
            stepper.begin()
        found = known or inventory_cache.InventoryCache(author)
        if known is None:
            found.refresh()
        served = engine.Engine(
            author,
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=boot),
            offered=found,
            claim_source=claim_source.FakeClaimSource(life.wants.claim()),
            journal=journaled,
            cdi=files,
            device_locks=device_locks,
            locks_of_claims=locks.FileLocks(life.folder / "data", "claims", disposable=True),
        )
        drivers.open_driver(author, served.resolver.planned)
        recovery.recover(served, journaled, files)
        home = driver_context.NodeDriverContext(
            author,
            data_dir=life.folder / "data",
            boot_id=boot,
            journal=journaled,
            driver_state=journaled,
            device_locks=device_locks,
            clock=timing.SystemClock(),
        )
        author.start(home)
        error = _call(served, life, stepper)
        author.stop()
    return {"error": error, "steps": stepper.names}


def _call(served: engine.Engine, life: Life, stepper: Stepper) -> str:
    """What the kubelet is told."""
    wanted = life.wants.claim()
    if life.act == "start":
        return ""
    stepper.begin()
    if life.act == "unprepare":
        return served.unprepare([wanted.ref], crash_node.Waiting())[wanted.ref.uid]
    answer: claims.Outcome = served.prepare([wanted.ref], crash_node.Waiting())[wanted.ref.uid]
    return answer.error


def stepper_of(life: Life, at: int | None) -> Stepper:
    """What counts the steps of a life, and kills at one."""

    def daemons_fall(_name: str) -> None:
        for running in mps_pods.living(life.folder / "mps").values():
            for one in running:
                one.send(signal.SIGKILL)

    kind = LineStepper if life.by_line else Stepper
    return kind(at, daemons_fall if life.falls == "daemons" else killed)


def live(life: Life, stepper: Stepper) -> dict[str, object]:
    """Live a life; return what ``serve`` returns, or the exception that ended it as the error."""
    try:
        return serve(life, stepper)
    except Exception as error:  # noqa: BLE001 - told to the test
        return {"error": f"{type(error).__name__}: {error}", "steps": []}


def fork(life: Life, at: int | None) -> dict[str, object]:
    """Live in a process of its own; what it told, or the signal that ended it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, json.dumps(live(life, stepper_of(life, at))).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        reported = stream.read().decode()
    _, status = os.waitpid(pid, 0)
    return json.loads(reported) if reported else {"signal": os.WTERMSIG(status)}


def main() -> None:
    """Serve lives until the input ends."""
    # What a victim logs of its end is the test's to judge.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    for name in machine.model_names():
        machine.load_model(name)
    gc.freeze()  # A life does not go through what was imported.
    for line in sys.stdin:
        reported = json.loads(line)
        at = reported.pop("at")
        os.write(1, f"{json.dumps(fork(Life.from_json(reported), at))}\n".encode())


if __name__ == "__main__":
    main()
