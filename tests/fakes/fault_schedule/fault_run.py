"""One schedule over a place: the steps, the calm after them, and everything that must be true then. A lie is a ``StormError`` with all its story."""

import dataclasses
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from drakit.cdi import directory, spec
from drakit.core import lifecycle
from drakit.node import resolution
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD
from fakes import cdi as cdi_fakes
from fakes import waits
from fakes.fault_schedule import hardware, process
from fakes.fault_schedule.faulty_cluster import MEDDLED, FaultyCluster
from fakes.fault_schedule.schedule import SHARES_MAX, Action, Allocatable, Step, draw

POLL_SECONDS = 0.01
TOLERATED_ENDS = {process.STOPPED, process.CANNOT_START, -signal.SIGKILL, -signal.SIGTERM}
LOG_SHOWN = 40
Problems = Iterator[str]


class FaultRunError(AssertionError):
    """What was not true in the end."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a schedule was, for the count: its steps, how often drivers were started, how many API requests were hit, and rarer things."""

    steps: int
    starts: int
    hits: int
    damaged: int
    reboots: int
    rivals: int


class FaultRun:
    """Schedules over one place, one after the other."""

    def __init__(self, place: FaultyCluster) -> None:
        self._place = place
        self._quick_cluster = place.quick_cluster
        self._births: dict[str, int] = {}
        self._unsteady: set[str] = set()
        self._threads: Counter[str] = Counter()
        gates = place.gates
        self._shop = Allocatable(
            halves=gates.on(Gate.PARTITIONABLE_DEVICES), shares=SHARES_MAX if gates.on(Gate.CONSUMABLE_CAPACITY) else 1
        )

    def run_schedule(self, seed: int) -> Outcome:
        """Play the schedule of a seed; raises StormError."""
        steps, place = draw(seed, self._shop), self._place
        starts, damaged, hits = place.starts, place.damaged, self._quick_cluster.cluster.server.faults.hits
        try:
            self._play(steps)
        except Exception as error:
            raise FaultRunError(self._story(seed, steps, error)) from error
        return Outcome(
            steps=len(steps),
            starts=place.starts - starts,
            hits=self._quick_cluster.cluster.server.faults.hits - hits,
            damaged=place.damaged - damaged,
            reboots=sum(step.do is Action.REBOOT for step in steps),
            rivals=sum(step.do is Action.RIVAL for step in steps),
        )

    def _play(self, steps: Sequence[Step]) -> None:
        place = self._place
        self._births.clear()
        self._unsteady.clear()
        place.log.clear()
        if not self._threads:
            self._until(self._what_is_offered, "calm before the first storm")
            self._threads = self._thread_names()
        for step in steps:
            place.act(step)
            if step.do is Action.REBOOT:
                self._births.clear()
                self._unsteady |= place.pods.keys()
            self._note_births()
        place.clear()
        before = place.keeper.starts
        self._until(self._what_runs, "what runs")
        if not {Action.UNPREPARE_FIRST} & {step.do for step in steps}:
            self._raise(self._what_was_made_twice())
        place.delete_pods()
        self._until(self._what_is_left, "what is left")
        place.delete_claims()
        self._until(lambda: (f"claim {name} is there" for name in self._claims()), "claims")
        self._until(lambda: (f"thread {name} leaked" for name in self._thread_names() - self._threads), "threads")
        self._raise(f"the driver ended with {code}" for _, code in (*place.keeper.ends, *place.rival.ends) if code not in TOLERATED_ENDS)
        late = (code for start, code in place.keeper.ends if start > before)
        self._raise(f"the driver ended with {code} after the storm" for code in late if code == process.CANNOT_START)
        for keeper in (place.keeper, place.rival):
            keeper.ends.clear()

    def _until(self, find: Callable[[], Problems], what: str) -> None:
        deadline = time.monotonic() + waits.SECONDS
        while (problem := next(find(), None)) is not None:
            if time.monotonic() > deadline:
                raise FaultRunError(f"{what}: " + "; ".join(find()))
            time.sleep(POLL_SECONDS)
            del problem

    def _raise(self, found: Problems) -> None:
        if problems := list(found):
            raise FaultRunError("; ".join(problems))

    def _what_runs(self) -> Problems:
        """What is not as it must be while pods run."""
        yield from self._what_is_broken()
        pods = self._pods()
        for name in self._place.pods:
            if json_types.text(pods.get(name, {}), "status", "phase") != "Running":
                yield f"pod {name} does not run: {json_types.text(pods.get(name, {}), 'status', 'phase') or 'it is gone'}"
        yield from (f"pod {name} is not gone" for name in pods.keys() - self._place.pods.keys())
        yield from self._what_is_offered()
        yield from self._what_is_remembered()
        for pod in self._place.pods:
            yield from self._what_a_container_lacks(pod)

    def _what_is_left(self) -> Problems:
        """What is not gone when all pods are."""
        yield from self._what_is_broken()
        yield from (f"pod {name} is not gone" for name in self._pods())
        yield from self._what_is_remembered()
        for name, claim in self._claims().items():
            if json_types.objects(claim, "status", "devices"):
                yield f"claim {name} still has a status: {json_types.objects(claim, 'status', 'devices')}"
        yield from self._what_is_offered()

    def _what_is_broken(self) -> Problems:
        yield from (path.name for path in (self._place.machine / "broken").iterdir())

    def _what_is_offered(self) -> Problems:
        """Where slices are not what the hardware is, as far as the gates let it be told."""
        slices = [one for one in self._quick_cluster.slices() if json_types.text(one, "spec", "driver") == process.NAME]
        found = Counter(json_types.text(device, "name") for one in slices for device in json_types.objects(one, "spec", "devices"))
        wanted = Counter(self._offerable())
        if found != wanted:
            yield f"offered are {sorted(found.elements())}, not {sorted(wanted)}"
        if any(
            MEDDLED in json_types.mapping(device, "attributes") for one in slices for device in json_types.objects(one, "spec", "devices")
        ):
            yield "somebody's change of a slice stands"
        pools = {repr(json_types.mapping(one, "spec", "pool")) for one in slices}
        if len(pools) != 1 or json_types.number(slices[0], "spec", "pool", "resourceSliceCount") != len(slices):
            yield f"{len(slices)} slices of pools {sorted(pools)}"

    def _offerable(self) -> Iterator[str]:
        gates = self._place.gates
        for base in hardware.BASES:
            yield base
            if base in hardware.CHIPS and gates.on(Gate.PARTITIONABLE_DEVICES):
                yield from (f"{base}-left", f"{base}-right")

    def _what_is_remembered(self) -> Problems:
        """Where journal, CDI files and hardware are not those of the pods that should run."""
        wanted = {claim: self._results(claim) for claim in set(self._place.pods.values())}
        cdi = directory.Directory(self._place.node.folder.cdi, driver=process.NAME)
        files = {path.name for path in cdi.path.glob("*.json")}
        memory = self._place.memory()
        entries = memory.entries
        if memory.is_lost:
            yield "the lost journal is not made good"
        states = {entry.claim.name: entry.state for entry in entries}
        if states != dict.fromkeys(wanted, lifecycle.State.PREPARED):
            yield f"the journal has {states}, wanted are {sorted(wanted)}"
        names = {resolution.cdi_name(process.NAME, entry.claim, kept): kept.edits for entry in entries for kept in entry.grants}
        if files != {spec.file_name(name) for name in names}:
            yield f"CDI files are {sorted(files)}, not {sorted(map(spec.file_name, names))}"
        yield from (
            f"CDI file of {name} is not as remembered" for name, kept in names.items() if kept and not cdi_fakes.holds(cdi, name, kept)
        )
        identities = {self._identity(result) for results in wanted.values() for result in results}
        made = {path.name for path in (self._place.machine / "made").iterdir()}
        if made != {f"{identity}@1" for identity in identities}:
            yield f"hardware has {sorted(made)}, not {sorted(identities)}"

    def _what_a_container_lacks(self, pod: str) -> Problems:
        try:
            env = self._quick_cluster.view(pod).env
        except (LookupError, RuntimeError) as error:
            yield f"pod {pod} has no container: {error}"
            return
        reported = {value for name, value in env.items() if name.startswith("FAKE_")}
        wanted = {self._identity(result) for result in self._results(self._place.pods[pod])}
        if reported != wanted:
            yield f"the container of pod {pod} was given {sorted(reported)}, not {sorted(wanted)}"

    def _note_births(self) -> None:
        """Remember since when the hardware of running pods exists; of those that a reboot took down it cannot be said when they run again."""
        pods = self._pods()
        for pod, claim in self._place.pods.items():
            if pod not in self._unsteady and json_types.text(pods.get(pod, {}), "status", "phase") == "Running":
                for result in self._results(claim):
                    born = self._born(self._identity(result))
                    if born is not None:
                        self._births.setdefault(f"{pod} {self._identity(result)}", born)

    def _what_was_made_twice(self) -> Problems:
        """Hardware that was taken from under a running pod and made anew."""
        for key, born in self._births.items():
            pod, identity = key.split()
            if pod in self._place.pods and self._born(identity) != born:
                yield f"{identity} of running pod {pod} was made anew"

    def _born(self, identity: str) -> int | None:
        try:
            return (self._place.machine / "made" / f"{identity}@1").stat().st_ctime_ns
        except FileNotFoundError:
            return None

    def _pods(self) -> Mapping[str, Object]:
        return {json_types.text(one, "metadata", "name"): one for one in self._quick_cluster.api.list(POD).items}

    def _claims(self) -> Mapping[str, Object]:
        return {json_types.text(one, "metadata", "name"): one for one in self._quick_cluster.api.list(CLAIM).items}

    def _results(self, claim: str) -> list[Object]:
        found = self._quick_cluster.find(CLAIM, claim) or {}
        return json_types.objects(found, "status", "allocation", "devices", "results")

    def _identity(self, result: Object) -> str:
        return json_types.text(result, "shareID") or json_types.text(result, "device")

    def _thread_names(self) -> Counter[str]:
        """The driver's threads by name without numbers; those of gRPC's pools come and go."""
        names = (name.rstrip("0123456789") for name in self._place.keeper.threads())
        return Counter(name for name in names if not name.endswith(("_", "-", ")")))

    def _story(self, seed: int, steps: Sequence[Step], error: Exception) -> str:
        lines = [
            f"seed {seed}: {type(error).__name__}: {error}",
            "",
            f"gates off: {sorted(set(Gate) - self._place.gates.enabled)}",
            "steps:",
        ]
        lines += [f"  {step}" for step in steps]
        lines += ["the driver's last words:", *list(self._place.log)[-LOG_SHOWN:], f"ends: {self._place.keeper.ends}"]
        lines += [f"events: {message}" for message in self._quick_cluster.events("FailedPrepareDynamicResources")[-5:]]
        return "\n".join(lines)
