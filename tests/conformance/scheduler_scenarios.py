"""What ``record_scheduler`` asks a real kube-scheduler: fleets of nodes that offer what drakit's drivers publish, and pods in an order."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from conformance.scheduler_recording import PROTOTYPE, Machine, Setting
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.simulation.workload import templates
from fakes import simulated_fleets as fleets

STOCK, FIRST_FIT = "default-scheduler", "first-fit"
"""The profiles of the scheduler: as it comes, and with one score alone, which ranks nodes by their names."""
_BUS = "resource.kubernetes.io/pciBusID"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """A pod arrives."""

    template: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
    """A running pod ends."""

    pod: str


Step = Ask | End


@dataclasses.dataclass(kw_only=True)
class State:
    """What the steps so far led to."""

    running: list[str] = dataclasses.field(default_factory=list)
    refused: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """A setting, and the steps that follow from its state."""

    setting: Setting
    steps: Callable[[State], Iterator[Step]]


def _spec(text: str, *, constraints: Sequence[Object] = (), each: Object | None = None) -> Object:
    """Return the spec of a claim in the simulator's shorthand; ``each`` are further fields of its requests."""
    requests = [
        request | {"exactly": json_types.mapping(request, "exactly") | (each or {})}
        for request in json_types.objects(templates.from_shorthand(text).claims[0], "spec", "devices", "requests")
    ]
    return {"devices": {"requests": json_types.from_objects(requests), "constraints": json_types.from_objects(constraints)}}


def _either(*texts: str) -> Object:
    options = [json_types.mapping(_spec(text), "devices", "requests", 0, "exactly") | {"name": f"o{at}"} for at, text in enumerate(texts)]
    return {"devices": {"requests": [{"name": "r", "firstAvailable": json_types.from_objects(options)}]}}


def _on_bus(text: str, bus: str) -> Object:
    """Return a claim whose first request names the GPU, which is the way around the counters that Kubernetes 1.36 keeps."""
    spec = _spec(text, constraints=[{"matchAttribute": "gpu.drakit.dev/parentUUID"}])
    exactly = json_types.mapping(spec, "devices", "requests", 0, "exactly")
    pin: Object = {"cel": {"expression": f'device.attributes["resource.kubernetes.io"].pciBusID == "{bus}"'}}
    exactly["selectors"] = [*json_types.items(exactly, "selectors"), pin]
    return spec


_SAME_GPU: Object = {"matchAttribute": "gpu.drakit.dev/parentUUID"}
_OTHER_GPU: Object = {"distinctAttribute": "gpu.drakit.dev/parentUUID"}
_PLAIN = ("mig=1g.5gb", "mig=2g.10gb", "mig=3g.20gb", "mig=1g.5gb*3", "gpu=1", "gpu=2", "mig=1g.6gb", "mig=2g.12gb*2", "nic=10G", "nic=60G")

MIXED: Mapping[str, Sequence[Object]] = {
    **{text: [_spec(text)] for text in _PLAIN},
    "partition and share": [_spec("mig=1g.5gb+nic=25G")],
    "two claims": [_spec("mig=2g.10gb"), _spec("nic=500M")],
    "one gpu for 1g, 2g and 3g": [_spec("mig=1g.5gb+mig=2g.10gb+mig=3g.20gb", constraints=[_SAME_GPU])],
    "one gpu for 3g twice": [_spec("mig=3g.20gb*2", constraints=[_SAME_GPU])],
    "two gpus for 1g twice": [_spec("mig=1g.5gb*2", constraints=[_OTHER_GPU])],
    "two interfaces": [_spec("nic=1G*2", constraints=[{"distinctAttribute": _BUS}])],
    "gpu, or 3g, or 2g of another model": [_either("gpu=1", "mig=3g.20gb", "mig=2g.12gb")],
    "named gpu": [_on_bus("mig=1g.5gb+mig=1g.5gb", "0000:07:00.0")],
    "all interfaces": [_spec("nic=2G", each={"allocationMode": "All", "count": None})],
}


def _machines(counts: Mapping[str, int]) -> list[Machine]:
    return [
        Machine(nodes=[f"{name}-{number:03}" for number in range(count)], slices=fleets.slices_of(name, PROTOTYPE))
        for name, count in counts.items()
    ]


def _setting(machines: Sequence[Machine], profile: str, asks: Mapping[str, Sequence[Object]], classes: Mapping[str, Object]) -> Setting:
    return Setting(kubernetes="", profile=profile, machines=machines, classes=classes, templates=asks)


def _day(seed: int, pods: int, refusals: int) -> Callable[[State], Iterator[Step]]:
    """Return steps that fill the fleet until pods were refused, and keep it full from then on: as many pods end as arrive."""

    def steps(state: State) -> Iterator[Step]:
        chance = random.Random(seed)
        for _ in range(pods):
            while state.running and chance.random() < (0.1 if state.refused < refusals else 0.45):
                yield End(pod=chance.choice(state.running))
            yield Ask(template=chance.choice(list(MIXED)))

    return steps


def _interfaces_only(count: int) -> Machine:
    """Return nodes without GPUs."""
    slices = [entry for entry in fleets.slices_of(_SMALL, PROTOTYPE) if json_types.text(entry, "spec", "driver") == fleets.NIC]
    return Machine(nodes=[f"cpu-{number:03}" for number in range(count)], slices=slices)


def _mixed(machines: Sequence[Machine], profile: str, *, seed: int, pods: int, refusals: int) -> Scenario:
    return Scenario(setting=_setting(machines, profile, MIXED, fleets.CLASSES), steps=_day(seed, pods, refusals))


def _scripted(machine: Machine, asks: Mapping[str, Object], *, gates: Sequence[str] = ()) -> Scenario:
    """Return a scenario of one machine on which every template is asked for once, in order."""
    classes: dict[str, Object] = {**fleets.CLASSES, "any": {"spec": {}}}
    setting = _setting([machine], FIRST_FIT, {name: [spec] for name, spec in asks.items()}, classes)
    return Scenario(setting=dataclasses.replace(setting, gates=gates), steps=lambda state: (Ask(template=name) for name in asks))


def _devices(driver: str, devices: Sequence[Object], counters: Mapping[str, str]) -> list[Object]:
    """Return the slices of a pool named ``pool``: its counter sets, each with one counter, and its devices."""
    pool: Object = {"name": "pool", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    common: Object = {"driver": driver, "nodeName": PROTOTYPE, "pool": pool}
    sets: list[Json] = [{"name": name, "counters": {"x": {"value": value}}} for name, value in counters.items()]
    made: list[Object] = [{"metadata": {"name": f"1-{driver}-{PROTOTYPE}"}, "spec": common | {"devices": json_types.from_objects(devices)}}]
    if counters:
        made.append({"metadata": {"name": f"0-{driver}-{PROTOTYPE}"}, "spec": common | {"sharedCounters": sets}})
    return made


def _drawing(name: str, counter_set: str) -> Object:
    return {"name": name, "consumesCounters": [{"counterSet": counter_set, "counters": {"x": {"value": "1"}}}]}


def _request(count: int) -> Object:
    exactly: Object = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    return {"name": "r", "exactly": exactly}


_SMALL = "dgx-a100-40gb-2gpu"


def plain_setting(machines: Sequence[Machine], asks: Iterable[str]) -> Setting:
    """Return machines on which pods of the stock profile ask for what the simulator's shorthand names."""
    return _setting(machines, STOCK, {text: [_spec(text)] for text in asks}, fleets.CLASSES)


def _ten() -> list[Machine]:
    return _machines({_SMALL: 6, "server-a30": 4})


def _hundred() -> list[Machine]:
    return [*_machines({_SMALL: 25, "server-a30": 15}), _interfaces_only(60)]


def _one(machine: str) -> Machine:
    return _machines({machine: 1})[0]


def _two_drivers() -> Scenario:
    devices = [_drawing(f"d{number}", "b") for number in range(2)]
    slices = [*_devices("a.example.com", [_drawing("a0", "a")], {"a": "1"}), *_devices("b.example.com", devices, {"b": "1"})]
    three: Object = {"devices": {"requests": [_request(3)]}}
    return _scripted(Machine(nodes=["node"], slices=slices), {"three": three})


def _by_parent(parents: Sequence[str | list[str]], constraint: Object, *, gates: Sequence[str] = ()) -> Scenario:
    """Return a scenario of three devices that the constraint compares by their parents."""
    values: list[Object] = [{"string": parent} if isinstance(parent, str) else {"strings": [*parent]} for parent in parents]
    devices: list[Object] = [{"name": f"d{number}", "attributes": {"parent": value}} for number, value in enumerate(values)]
    machine = Machine(nodes=["node"], slices=_devices("a.example.com", devices, {}))
    return _scripted(machine, {"three": {"devices": {"requests": [_request(3)], "constraints": [constraint]}}}, gates=gates)


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "10-nodes": lambda: _mixed(_ten(), FIRST_FIT, seed=1, pods=250, refusals=10),
    "10-nodes-stock": lambda: _mixed(_ten(), STOCK, seed=2, pods=250, refusals=10),
    "100-nodes": lambda: _mixed(_hundred(), FIRST_FIT, seed=3, pods=200, refusals=10),
    "100-nodes-stock": lambda: _mixed(_hundred(), STOCK, seed=4, pods=60, refusals=10),
    "kept-counters": lambda: _scripted(
        _one(_SMALL), {"1g": _spec("mig=1g.5gb"), "one gpu for 3g twice": _spec("mig=3g.20gb*2", constraints=[_SAME_GPU])}
    ),
    "distinct-last": lambda: _by_parent(["A", "B", "A"], {"distinctAttribute": "a.example.com/parent"}),
    "admin-counters": lambda: _scripted(_one(_SMALL), {"both": _spec("gpu=2"), "admin": _spec("mig=1g.5gb", each={"adminAccess": True})}),
    "pool-names": _two_drivers,
    "lists-not-restored": lambda: _by_parent(
        [["p", "q"], ["p"], ["q"], ["q", "r"]], {"matchAttribute": "a.example.com/parent"}, gates=["DRAListTypeAttributes"]
    ),
}
