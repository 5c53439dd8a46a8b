"""The reason why a pod waits names equal nodes once, and first the devices that come nearest to fitting."""

from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.explain import whatif
from fakes.allocation_objects import CLASSES, claim, device, request, resource_slice, strings


def reason(wanted: Object, *devices: Object, nodes: tuple[str, ...]) -> str:
    slices = [resource_slice(devices, name=node, pool=node, place={"nodeName": node}) for node in nodes]
    world = whatif.World(slices=slices, classes=list(CLASSES.values()), claims=[wanted])
    (decision,) = whatif.Scheduler(world, FeatureGates(), world.known_nodes()).decide()
    return decision.message


def test_nodes_with_the_same_reason_are_listed_together() -> None:
    text = reason(claim(request(count=2)), device("d0"), nodes=("n1", "n2", "n3", "n4", "n5"))
    assert text.startswith("0/5 nodes are available: n1, n2, n3 and 2 more: claim ")
    assert text.count("request r: needs 2 devices, 1 available") == 1


def test_devices_of_other_kinds_are_a_number_beside_those_of_the_kind_asked_for() -> None:
    tainted = device("d0", attributes=strings(kind="a"), taints=[{"key": "broken", "effect": "NoSchedule"}])
    others = [device(f"d{number}", attributes=strings(kind="b")) for number in (1, 2)]
    selector: Object = {"cel": {"expression": 'device.attributes["drv"].kind == "a"'}}
    text = reason(claim(request(selectors=[selector])), tainted, *others, nodes=("n1",))
    assert text.endswith("(1x tainted and not tolerated: broken:NoSchedule; 2x for other reasons)")
    assert reason(claim(request(selectors=[selector])), *others, nodes=("n1",)).endswith(
        '(2x not selected by the request: device.attributes["drv"].kind == "a", and no device here has kind a: the only value of kind is b)'
    )
