"""What a simulation costs does not grow with the number of tasks that wait: one attempt answers for all that ask for the same."""

from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.engine import policies, simulator
from drakit_cluster.simulation.engine.nodes import Grant, Node, Nodes
from drakit_cluster.simulation.workload import tasks, templates
from drakit_cluster.simulation.workload.tasks import Task
from drakit_cluster.simulation.workload.templates import PodTemplate
from fakes import simulated_fleets as fleets

ONE = templates.from_shorthand("gpu=1")


class CountingNodes(Nodes):
    """Counts the questions to the allocator."""

    asked = 0

    def allocate(self, template: PodTemplate, node: Node, first: str = "") -> Grant | None:
        self.asked += 1
        return super().allocate(template, node, first)


def asked_with(waiting: int, wanted: Object, pods: int) -> int:
    """Return how often the allocator is asked where 20 short tasks run beside tasks that wait for good on two GPUs."""
    never = templates.from_claim_spec("never", wanted)
    blocker = [Task(name="blocker", template=ONE, arrival=0.0)]
    hopeless = [Task(name=f"h-{number}", template=never, arrival=1.0, pods=pods) for number in range(waiting)]
    short = [Task(name=f"s-{number}", template=ONE, arrival=2.0 + number, duration=0.5) for number in range(20)]
    nodes = CountingNodes(fleets.fleet_of({"dgx-a100-40gb-2gpu": 1}))
    outcomes = simulator.Simulator(nodes, tasks.ordered([*blocker, *hopeless, *short]), policies.parse("first-fit")).run()
    assert sum(outcome.started is not None for outcome in outcomes) == 21
    return nodes.asked


def test_waiting_pods_cost_no_more_allocations_than_starting_ones() -> None:
    wanted: Object = {"devices": {"requests": [{"name": "r", "exactly": _gpus(2)}]}}
    assert asked_with(500, wanted, pods=1) == asked_with(1, wanted, pods=1) == 21


def test_a_gang_without_room_for_all_pods_is_not_tried() -> None:
    wanted: Object = {"devices": {"requests": [{"name": "r", "exactly": _gpus(1)}]}}
    assert asked_with(500, wanted, pods=2) == 21


def test_a_gang_with_alternatives_and_no_room_is_not_tried() -> None:
    wanted: Object = {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a", **_gpus(2)}, {"name": "b", **_gpus(1)}]}]}}
    assert asked_with(500, wanted, pods=2) == 21


def _gpus(count: int) -> Object:
    return {"deviceClassName": "gpu.drakit.dev", "allocationMode": "ExactCount", "count": count}
