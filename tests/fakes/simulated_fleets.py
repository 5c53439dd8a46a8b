"""Fleets for simulations: the slices that mock machines publish, and a slow reference that decides every pod over all nodes."""

import functools
import heapq
import json
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from drakit import machines
from drakit.core import records
from drakit.core.slices import feature_gates, paging, reconcile, resource_slice
from drakit.kube import slice_codec
from drakit_cluster.api.storage.store import Key
from drakit_cluster.cel import selectors
from drakit_cluster.client.sharing import Sharing
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import placement
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.simulation.fleet import groups
from drakit_cluster.simulation.workload.tasks import Task, Workload
from drakit_gpu import options
from fakes import installed_drivers

GPU, NIC = "gpu.drakit.dev", "nic.drakit.dev"


def _class(driver: str, kind: str = "") -> Object:
    extra = f' && device.attributes["{driver}"].type == "{kind}"' if kind else ""
    return {"spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"{extra}'}}]}}


CLASSES: Mapping[str, Object] = {"gpu.drakit.dev": _class(GPU, "gpu"), "mig.drakit.dev": _class(GPU, "mig"), "nic.drakit.dev": _class(NIC)}


@functools.cache
def _published(machine: str, node: str, layouts: str) -> str:
    made: list[Object] = []
    with tempfile.TemporaryDirectory() as folder:
        choice = machines.Choice(name=machine, directory=pathlib.Path(folder) / "mock", owner=node)
        for family, driver in (("gpu", GPU), ("nic", NIC)):
            settings: dict[str, Any] = (
                {"mig_layouts": tuple(options.MigLayout(**entry) for entry in json.loads(layouts))} if family == "gpu" else {}
            )
            offered = feature_gates.without_lists(installed_drivers.build(family, node=node, machine=choice, **settings).discover())
            pages = paging.paginate(offered, form=resource_slice.Form.FLAT, layout=resource_slice.Layout.APART)
            changes = reconcile.plan(pages, (), driver=driver, node=node, pool=node)
            made += [
                {"metadata": {"name": f"{create.prefix}x"}, "spec": records.thaw(slice_codec.encode(create.spec))}  # type: ignore[dict-item]
                for create in changes.creates
            ]
    return json.dumps(made)


def slices_of(machine: str, node: str, layouts: Sequence[Mapping[str, object]] = ()) -> list[Object]:
    """Return the slices that both drivers publish for a node, by default or with ``gpu.mig_layouts``; every node has identities of its own."""
    made: list[Object] = json.loads(_published(machine, node, json.dumps(layouts)))
    return made


def fleet_of(counts: Mapping[str, int], held: Sequence[Object] = ()) -> groups.Fleet:
    """Return a fleet of machines."""
    made = [groups.of_machine(name, slices_of(name, "prototype"), "prototype", count) for name, count in counts.items()]
    return groups.Fleet(groups=made, classes=CLASSES, held=held)


def node_names(fleet: groups.Fleet) -> dict[str, str]:
    """Return the machine of every node, by the node's name."""
    return {name: group.label for group in fleet.groups for name in group.names}


class Reference:
    """Runs a workload by ``placement.place``, the decision of the local cluster's scheduler, over the slices of all nodes."""

    def __init__(self, machine_of: Mapping[str, str], errors: KnownErrors = known_errors.NONE) -> None:
        slices = [one for node, machine in machine_of.items() for one in slices_of(machine, node)]
        self._nodes: list[Object] = [{"metadata": {"name": name}} for name in sorted(machine_of)]
        self._allocator = Allocator(slices, CLASSES, selectors.Selectors(FeatureGates()), FeatureGates(), errors)
        self._allocated = AllocatedState()
        self._given: dict[str, tuple[float, list[tuple[str, list[str]]]]] = {}
        self._claims: dict[str, list[Object]] = {}
        self._numbers = iter(range(10**9))

    def run(self, workload: Workload) -> list[tuple[str, float | None, list[tuple[str, list[str]]]]]:
        """Return name, start and (node, devices) of every pod of every task."""
        ends: list[tuple[float, int, Task]] = []
        waiting: list[Task] = []
        for task in workload.tasks:
            self._end(ends, waiting, task.arrival)
            arrived = [task]
            self._try_all(arrived, ends, task.arrival)
            waiting += arrived
        self._end(ends, waiting, float("inf"))
        return [(task.name, *self._given.get(task.name, (None, []))) for task in workload.tasks]

    def _end(self, ends: list[tuple[float, int, Task]], waiting: list[Task], until: float) -> None:
        while ends and ends[0][0] <= until:
            now = ends[0][0]
            while ends and ends[0][0] == now:
                self._take_back(heapq.heappop(ends)[2])
            self._try_all(waiting, ends, now)

    def _try_all(self, waiting: list[Task], ends: list[tuple[float, int, Task]], now: float) -> None:
        for task in list(waiting):
            if self._start(task, now):
                waiting.remove(task)
                if task.duration is not None:
                    heapq.heappush(ends, (now + task.duration, next(self._numbers), task))

    def _start(self, task: Task, now: float) -> bool:
        self._claims[task.name] = []
        pods = []
        for number in range(task.pods):
            if (placed := self._place(task, number)) is None:
                self._take_back(task)
                return False
            pods.append(placed)
        self._given[task.name] = (now, pods)
        return True

    def _place(self, task: Task, number: int) -> tuple[str, list[str]] | None:
        name = f"{task.name}-{number}"
        claims: dict[Key, Object] = {
            Key("default", f"{name}-{place}"): {
                "metadata": {"namespace": "default", "name": f"{name}-{place}", "uid": f"{name}-{place}"},
                "spec": claim["spec"],
            }
            for place, claim in enumerate(task.template.claims)
        }
        references: list[Object] = [{"name": key.name, "resourceClaimName": key.name} for key in claims]
        pod: Object = {
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "spec": {"resourceClaims": json_types.from_objects(references), "nodeSelector": task.template.node_selector},
        }
        site = placement.Site(
            nodes=self._nodes,
            claims=claims,
            allocator=self._allocator,
            allocated=self._allocated,
            new_share_id=lambda: str(next(self._numbers)),
            sharing=Sharing(groups=False, workloads=False),
            groups={},
            is_first=lambda pod: True,
            resources={},
            taken=lambda node, resource: 0,
            apart=lambda node: "",
            holders=dict,
        )
        found = placement.place(pod, site)
        if isinstance(found, placement.Refusal):
            return None
        devices = []
        for claim, allocation in found.allocate:
            allocated: Object = claim | {"status": {"allocation": allocation}}
            self._allocated.add(allocated)
            self._claims[task.name].append(allocated)
            results = json_types.objects(allocation, "devices", "results")
            devices += [f"{json_types.text(one, 'driver')}/{json_types.text(one, 'device')}" for one in results]
        return found.node, devices

    def _take_back(self, task: Task) -> None:
        for claim in self._claims.pop(task.name, []):
            self._allocated.remove(claim)
