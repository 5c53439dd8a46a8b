"""Recordings of a real kube-scheduler: a fleet, what pods asked for, and what each of them got, one after another.

A recording is JSON lines, compressed. The first line is the fleet; every other line is one event, in order: a pod that was bound or
refused, or a pod that ended. Of a claim's allocation only the results are kept, with capacities as plain numbers.
"""

import dataclasses
import gzip
import json
import pathlib
from collections.abc import Mapping, Sequence

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.fleet import groups
from drakit_cluster.simulation.workload.templates import PodTemplate

PROTOTYPE = "prototype"
"""The node that a machine's slices name; each node of the machine has these slices in its own name."""
HOSTNAME = "kubernetes.io/hostname"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Nodes that offer the same."""

    nodes: Sequence[str]
    slices: Sequence[Object]

    def slices_of(self, node: str) -> list[Object]:
        """Return the slices of one node."""
        return [_renamed(entry, node) for entry in self.slices]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placed:
    """A pod that was bound. ``results`` are those of all its claims; ``feasible`` are all nodes that passed the filters, sorted."""

    pod: str
    template: str
    node: str
    results: Sequence[Object]
    feasible: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
    """A pod that fits on no node; ``message`` is the scheduler's. It was deleted at once."""

    pod: str
    template: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A pod that was bound before and gave its devices back."""

    pod: str


Event = Placed | Refused | Ended
_EVENTS: Mapping[str, type[Placed] | type[Refused] | type[Ended]] = {"placed": Placed, "refused": Refused, "ended": Ended}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What the events happened on. ``templates`` are the specs of the claims of a pod, by the template's name.

    ``gates`` are the feature gates that were on beside those that are on by default.
    """

    kubernetes: str
    profile: str
    machines: Sequence[Machine]
    classes: Mapping[str, Object]
    templates: Mapping[str, Sequence[Object]]
    gates: Sequence[str] = ()

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, sorted."""
        return sorted(name for machine in self.machines for name in machine.nodes)

    def slices(self) -> list[Object]:
        """Return the slices of all nodes."""
        return [entry for machine in self.machines for node in machine.nodes for entry in machine.slices_of(node)]

    def pod_templates(self) -> dict[str, PodTemplate]:
        """Return what pods ask for, as the simulator takes it."""
        return {name: PodTemplate(name=name, claims=[_claim(name, spec) for spec in specs]) for name, specs in self.templates.items()}

    def fleet(self) -> groups.Fleet:
        """Return the fleet as ``drakit simulate`` reads it from the objects of a cluster."""
        nodes: list[Object] = [{"metadata": {"name": name, "labels": {HOSTNAME: name}}} for name in self.nodes]
        return groups.of_objects(self.slices(), nodes, self.classes, groups.Reads.of(self.pod_templates().values()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """A setting and what happened on it."""

    setting: Setting
    events: Sequence[Event]


def read(path: pathlib.Path) -> Recording:
    """Return the recording of a file."""
    first, *rest = gzip.decompress(path.read_bytes()).decode().splitlines()
    fields = json.loads(first)
    machines = [Machine(**entry) for entry in fields.pop("machines")]
    events = [_EVENTS[kind](**values) for line in rest for kind, values in json.loads(line).items()]
    return Recording(setting=Setting(machines=machines, **fields), events=events)


def write(path: pathlib.Path, recording: Recording) -> None:
    """Write a recording; equal recordings give equal bytes."""
    kinds = {type_: kind for kind, type_ in _EVENTS.items()}
    documents: list[object] = [dataclasses.asdict(recording.setting)]
    documents += [{kinds[type(event)]: dataclasses.asdict(event)} for event in recording.events]
    content = "".join(f"{json.dumps(document, separators=(',', ':'))}\n" for document in documents).encode()
    path.write_bytes(gzip.compress(content, mtime=0))


def results_of(allocation: Object) -> list[Object]:
    """Return the results of an allocation as a recording keeps them."""
    return [_plain(result) for result in json_types.objects(allocation, "devices", "results")]


def _plain(result: Object) -> Object:
    kept: Object = {name: result[name] for name in ("request", "driver", "pool", "device")}
    if result.get("adminAccess"):
        kept["adminAccess"] = True
    if result.get("shareID"):
        kept["shareID"] = "any"
        consumed = json_types.mapping(result, "consumedCapacity")
        kept["consumedCapacity"] = {name: str(quantity.parse(amount).units) for name, amount in sorted(consumed.items())}
    return kept


def _claim(name: str, spec: Object) -> Object:
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec}


def _renamed(entry: Object, node: str) -> Object:
    spec = json_types.mapping(entry, "spec")
    pool = json_types.mapping(spec, "pool")
    shown = json_types.text(pool, "name")
    own = node + shown.removeprefix(PROTOTYPE) if shown == PROTOTYPE or shown.startswith(f"{PROTOTYPE}/") else shown
    name = json_types.text(entry, "metadata", "name").replace(PROTOTYPE, node)
    return {"metadata": {"name": name}, "spec": spec | {"nodeName": node, "pool": pool | {"name": own}}}
