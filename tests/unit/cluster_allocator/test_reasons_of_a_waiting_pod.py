"""The reason why a pod waits names equal nodes once, and first the devices that come nearest to fitting."""

from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.explain import whatif
from fakes.allocation_objects import CLASSES, claim, device, partitioned, request, resource_slice, strings


def reason(wanted: Object, *devices: Object, nodes: tuple[str, ...]) -> str:
    slices = [resource_slice(devices, name=node, pool=node, place={"nodeName": node}) for node in nodes]
    return reason_in(slices, wanted)


def reason_in(slices: list[Object], *claims: Object) -> str:
    world = whatif.World(slices=slices, classes=list(CLASSES.values()), claims=claims)
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


def held(name: str, pool: str, device: str, *pods: str) -> Object:
    """A claim with a device, reserved for some pods."""
    result: Object = {"request": "r", "driver": "drv", "pool": pool, "device": device}
    users: Json = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    metadata: Object = {"namespace": "ns", "name": name, "uid": name}
    return {**claim(request()), "metadata": metadata, "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}}


def test_equal_nodes_name_once_the_claims_and_pods_that_have_what_is_missing() -> None:
    taken = [held(f"c{number}", f"n{number}", "d0", *pods) for number, pods in enumerate([("p",), (), ("q", "r"), ("s",)], 1)]
    refused = "claim default/c, request r: needs 1 device, none available (1x in use)"

    def refusal(*nodes: str) -> str:
        slices = [resource_slice([device("d0")], name=node, pool=node, place={"nodeName": node}) for node in nodes]
        return reason_in(slices, *taken, claim(request()))

    by = "taken by claim ns/c1 of pod p, claim ns/c2, claim ns/c3 of pods q, r"
    assert refusal("n1", "n2", "n3") == f"0/3 nodes are available: n1, n2, n3: {refused}, {by}"
    by = "on n1 taken by claim ns/c1 of pod p"
    assert refusal("n1", "n2", "n3", "n4") == f"0/4 nodes are available: n1, n2, n3 and 1 more: {refused}, {by}"


def test_who_draws_a_counter_is_named_and_who_draws_another_is_not() -> None:
    names = ("a0", "a1", "b0", "b1")
    parts = [device(name, draws={f"set.{name[0]}": "1"}, attributes=strings(kind=name[0])) for name in names]
    slices = partitioned(parts, {"set.a": "1", "set.b": "1"})
    selector: Object = {"cel": {"expression": 'device.attributes["drv"].kind == "a"'}}
    text = reason_in(slices, held("x", "pool", "a0", "p"), held("y", "pool", "b0", "q"), claim(request(selectors=[selector])))
    assert "counter a of set: 1 needed, none of 1 left" in text
    assert text.endswith("), taken by claim ns/x of pod p")


def test_who_has_what_another_request_of_the_pod_can_do_without_is_not_named() -> None:
    slices = [resource_slice([device("d0"), device("d1")], name="n1", pool="n1", place={"nodeName": "n1"})]
    nothing: Object = {"cel": {"expression": "false"}}
    text = reason_in(slices, held("x", "n1", "d0", "p"), claim(request("fits"), request("odd", selectors=[nothing])))
    assert "request odd: needs 1 device, none available" in text
    assert "taken by" not in text
