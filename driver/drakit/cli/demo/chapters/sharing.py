"""NICs: one shared by bandwidth, a pod that waits for its turn, and two kept apart."""

import time

from drakit.cli.demo import samples, world
from drakit.core import quantity
from drakit_cluster import json_types

_DEVICE = "bandwidth"
_SHARED = {"training": "33340M", "storage": "14290M", "metrics": "100M"}


def show(scene: world.World) -> None:
    """Three claims on one NIC: share ids, and what they consume after rounding."""
    stage = scene.stage
    stage.chapter("Three claims share one NIC by bandwidth")
    stage.say("The NIC stays one device; each claim gets a share with an id of its own. Bandwidth comes in steps of 10M (KEP-5075).")
    scene.create(samples.load("30-shared-nic"))
    scene.run(*_SHARED)
    given = {pod: _only(scene, pod) for pod in _SHARED}
    rows = [
        (pod, _asked(scene, pod) or "(nothing)", _consumed(one), json_types.text(one, "device"), json_types.text(one, "shareID"))
        for pod, one in given.items()
    ]
    stage.table(["POD", "REQUESTED", "CONSUMED", "NIC", "SHARE ID"], rows)
    stage.show(scene.node.bandwidth_bars())
    stage.check("all three are on one NIC", len({json_types.text(one, "device") for one in given.values()}), 1)
    stage.check("each has a share id of its own", len({json_types.text(one, "shareID") for one in given.values()} - {""}), len(_SHARED))
    stage.check("what they consume is rounded up to the NIC's step", {pod: _consumed(one) for pod, one in given.items()}, _SHARED)
    installed = {share.id: quantity.Quantity.of(share.bandwidth) for share in scene.node.look().shares}
    wanted = {json_types.text(one, "shareID"): quantity.Quantity.parse(_consumed(one)) for one in given.values()}
    stage.check("the hardware has these three shares, at these rates", installed, wanted)


def show_waiting(scene: world.World) -> None:
    """A pod that waits because the bandwidth is gone, and starts when another ends."""
    stage = scene.stage
    stage.chapter("A pod waits for bandwidth, and starts when another ends")
    *shared, second = samples.load("40-waiting")
    scene.create(shared)
    scene.run("first")
    stage.say("Pod first took 50G of the same NIC. Pod second wants 50G of it too:")
    scene.create([second])
    reason = stage.wait("the scheduler has looked for devices for pod second", lambda: _lack_of_devices(scene, "second"))
    stage.say(f"{world.phase(scene.pod('second'))}: {reason}", style="yellow")
    stage.check("nothing is allocated to pod second", world.results(scene.claim_of("second")), [])
    stage.say("Now pod first is deleted.")
    began = time.monotonic()
    scene.delete_pods("first")
    scene.run("second")
    stage.say(f"Pod second runs, {time.monotonic() - began:.2f} s after the delete:")
    stage.show(scene.node.bandwidth_bars())
    stage.check("pod second has its 50G", _consumed(_only(scene, "second")), "50G")


def _lack_of_devices(scene: world.World, pod: str) -> str:
    """Why no device suits; empty while the scheduler waits for something else, such as the claim to be made from its template."""
    reason = world.unschedulable(scene.pod(pod))
    return reason if ", request " in reason else ""


def show_apart(scene: world.World) -> None:
    """Two requests on two NICs by distinctAttribute."""
    stage = scene.stage
    stage.chapter("Two shares on two different NICs")
    stage.say("Both requests would fit on one NIC. distinctAttribute nic.drakit.dev/ifName keeps them apart.")
    scene.create(samples.load("50-two-nics"))
    scene.run("two-nics")
    found = world.results(scene.claim_of("two-nics"))
    stage.table(
        ["REQUEST", "NIC", "CONSUMED", "SHARE ID"],
        [
            (json_types.text(one, "request"), json_types.text(one, "device"), _consumed(one), json_types.text(one, "shareID"))
            for one in found
        ],
    )
    stage.check("two requests, two NICs", len({json_types.text(one, "device") for one in found}), 2)


def _only(scene: world.World, pod: str) -> json_types.Object:
    (found,) = world.results(scene.claim_of(pod))
    return found


def _asked(scene: world.World, pod: str) -> str:
    return json_types.text(scene.claim_of(pod), "spec", "devices", "requests", 0, "exactly", "capacity", "requests", _DEVICE)


def _consumed(result: json_types.Object) -> str:
    return json_types.text(result, "consumedCapacity", _DEVICE)
