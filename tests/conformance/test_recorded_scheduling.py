"""``drakit simulate`` decides as the recorded kube-scheduler 1.36.2 did, pod by pod: which nodes are feasible, which one is taken, which devices."""

import pathlib

import pytest

from conformance import scheduler_recording
from conformance.scheduler_recording import Ended, Event, Placed, Recording, Refused
from conformance.scheduler_scenarios import FIRST_FIT
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.simulation.engine.nodes import Grant, Node, Nodes
from drakit_cluster.simulation.engine.placer import Placer
from drakit_cluster.simulation.engine.policies import Fragmentation, Policy
from drakit_cluster.simulation.workload.templates import PodTemplate

CASES = pathlib.Path(__file__).parent / "cases" / "scheduler"
FLEETS = sorted(path.name.partition(".")[0] for path in CASES.glob("*-nodes*"))
VERSION = "1.36"


def results(grant: Grant) -> list[Object]:
    """Return what a pod got, in the names of its node."""
    found = [
        result for claim in grant.claims for result in scheduler_recording.results_of(json_types.mapping(claim, "status", "allocation"))
    ]
    prototype, name = grant.node.type.prototype, grant.node.name
    return [result | {"pool": name} if result["pool"] == prototype else result for result in found]


def gates_of(recorded: Recording) -> FeatureGates:
    return FeatureGates.of(dict.fromkeys(recorded.setting.gates, True))


class Feasibility:
    """Asks the simulator's allocator for every node; nodes of one kind in one state have one answer."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._known: dict[object, bool] = {}

    def of(self, template: PodTemplate) -> list[str]:
        return sorted(node.name for node in self._nodes.all if self._fits(template, node))

    def _fits(self, template: PodTemplate, node: Node) -> bool:
        key = (template, node.type, tuple(node.states))
        if key not in self._known:
            grant = self._nodes.allocate(template, node)
            self._known[key] = grant is not None
            if grant is not None:
                self._nodes.release(grant)
        return self._known[key]


class Replay:
    """Repeats every decision from what the scheduler had before it; pods hold what the scheduler gave them."""

    def __init__(self, recorded: Recording, errors: KnownErrors) -> None:
        self._recorded = recorded
        self._nodes = Nodes(recorded.setting.fleet(), gates=gates_of(recorded), errors=errors)
        self._templates = recorded.setting.pod_templates()
        self._by_name = {node.name: node for node in self._nodes.all}
        self._running: dict[str, list[Grant]] = {}
        self._feasibility = Feasibility(self._nodes)

    def differences(self) -> list[str]:
        """Return where the simulator decides otherwise."""
        return list(filter(None, map(self._difference, self._recorded.events)))

    def _difference(self, event: Event) -> str:
        if isinstance(event, Ended):
            for grant in self._running.pop(event.pod):
                self._nodes.release(grant)
                self._update(grant)
            return ""
        template = self._templates[event.template]
        feasible = self._feasibility.of(template)
        if isinstance(event, Refused):
            return f"{event.pod} ({event.template}): refused; the simulator finds room on {feasible}" if feasible else ""
        ours = None
        if (tried := self._nodes.allocate(template, self._by_name[event.node])) is not None:
            ours = results(tried)
            self._nodes.release(tried)
        self._hold(event)
        if (feasible, ours) == (event.feasible, event.results):
            return ""
        return f"{event.pod} ({event.template}) on {event.node}: {event.results} of {event.feasible}; the simulator: {ours} of {feasible}"

    def _hold(self, event: Placed) -> None:
        """Give a pod the devices that the scheduler gave it."""
        allocation: Object = {"devices": {"results": json_types.from_objects(event.results)}}
        claim: Object = {"metadata": {"uid": event.pod}, "status": {"allocation": allocation}}
        self._running[event.pod] = self._nodes.grants_of(claim)
        for grant in self._running[event.pod]:
            self._nodes.restore(grant)
            self._update(grant)

    def _update(self, grant: Grant) -> None:
        for _ in self._nodes.update(grant):
            pass


@pytest.mark.parametrize("name", FLEETS)
def test_every_decision_is_that_of_kube_scheduler(name: str) -> None:
    recorded = scheduler_recording.read(CASES / f"{name}.jsonl.gz")
    assert recorded.setting.kubernetes.startswith(f"v{VERSION}.")
    assert {type(event) for event in recorded.events} >= {Placed, Ended}
    assert Replay(recorded, known_errors.of_version(VERSION)).differences() == []


@pytest.mark.parametrize("name", [name for name in FLEETS if "stock" not in name])
def test_first_fit_takes_the_node_and_the_devices_that_kube_scheduler_takes(name: str) -> None:
    """The scheduler's only score ranks nodes by name; the simulator finds the same node by its index."""
    recorded = scheduler_recording.read(CASES / f"{name}.jsonl.gz")
    assert recorded.setting.profile == FIRST_FIT
    templates = recorded.setting.pod_templates()
    placer = Placer(Nodes(recorded.setting.fleet(), errors=known_errors.of_version(VERSION)), Policy(), Fragmentation({}))
    running: dict[str, Grant] = {}
    for event in recorded.events:
        if isinstance(event, Ended):
            placer.release(running.pop(event.pod))
            continue
        ours = None
        if (placed := placer.place(templates[event.template])) is not None:
            running[event.pod] = placed
            ours = (placed.node.name, results(placed))
        assert ours == ((event.node, event.results) if isinstance(event, Placed) else None), event.pod


@pytest.mark.parametrize(
    "name, error",
    [
        ("admin-counters", KnownError.ADMIN_COUNTERS),
        ("distinct-last", KnownError.DISTINCT_LAST),
        ("kept-counters", KnownError.KEPT_COUNTERS),
        ("lists-not-restored", KnownError.LISTS_NOT_RESTORED),
        ("pool-names", KnownError.POOL_NAMES),
    ],
)
def test_a_known_error_alone_explains_what_kube_scheduler_decides(name: str, error: KnownError) -> None:
    recorded = scheduler_recording.read(CASES / f"{name}.jsonl.gz")
    answers = [
        known_errors.KUBERNETES_1_36,
        KnownErrors(kinds=frozenset({error})),
        KnownErrors(kinds=known_errors.KUBERNETES_1_36.kinds - {error}),
    ]
    same, alone, without = (Replay(recorded, errors).differences() for errors in answers)
    assert (same, alone) == ([], [])
    assert len(without) == 1
