"""The chapters of the demo, in the order in which ``story`` plays them: publishing, partitions, shares, a crash with its recovery, the end.

Each chapter shows one thing on the ``World`` and checks it.
"""

import signal

from drakit.core import lifecycle, quantity
from drakit.telemetry import plurals
from drakit_cluster.objects import json_types, resources
from drakit_gpu.mock import fault_injection
from drakit_tools.demo import demo_cluster, node_view, samples

_PARTITIONS_POD, _CONTAINER = "four-partitions", "medium"
_VARIABLE = "GPU_DEVICE_"
_BANDWIDTH = "bandwidth"
_SHARED = {"training": "33340M", "storage": "14290M", "metrics": "100M"}
"""The pods that share a NIC, with what each consumes."""
_CRASH_POD = "one-partition"
_STALL = fault_injection.Fault(call="create_gpu_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.HANG)


def show_publishing(world: demo_cluster.World) -> None:
    """Show how many devices each driver offers, and check that the API server has those of the hardware."""
    stage = world.stage
    stage.chapter("The driver publishes what the node has")
    stage.say(
        f"A driver process (pid {world.driver.pid}) talks to the API server over HTTPS and to the kubelet over unix sockets. Only the "
        f"hardware is a mock: {world.node.machine.name}, as node {world.node_name}. Each possible MIG placement is a device."
    )
    for driver, wanted in world.node.offers().items():
        stage.wait(f"{driver} has published", lambda driver=driver, wanted=wanted: world.devices(driver) >= wanted)  # type: ignore[misc]
        promise = f"{driver}: the API server has the {plurals.counted(len(wanted), 'device')} that the hardware offers"
        stage.check(promise, world.devices(driver), wanted)


def show_partitions(world: demo_cluster.World) -> None:
    """Show 1g.5gb, 1g.5gb, 2g.10gb and 3g.20gb of one parent on the map of memory slices, and what a container sees of them."""
    stage = world.stage
    stage.chapter("One claim, four MIG partitions of one GPU")
    stage.say("KEP-4815's example: 1g.5gb, 1g.5gb, 2g.10gb and 3g.20gb, selected by CEL, with matchAttribute gpu.drakit.dev/parentUUID.")
    before = world.node.look().counts
    world.create(samples.load("10-mig-partitions"))
    seconds = world.run(_PARTITIONS_POD)
    allocated = demo_cluster.results(world.claim_of(_PARTITIONS_POD))
    stage.table(["REQUEST", "DEVICE"], [(json_types.text(result, "request"), json_types.text(result, "device")) for result in allocated])
    stage.say(f"From pod to running container in {seconds:.2f} s. The GPUs' memory slices now:")
    stage.show(world.node.memory_map(stage.room))
    now = world.node.look()
    parents = {str(grant.device.attributes["parentUUID"]) for entry in now.entries for grant in entry.grants}
    requests = sorted(json_types.text(result, "request") for result in allocated)
    stage.check("each request got a partition", requests, ["large", "medium", "small-a", "small-b"])
    stage.check("all four have the same parent GPU", len(parents), 1)
    stage.check("the hardware has four more GPU instances", now.counts.gpu_instances - before.gpu_instances, 4)
    _show_container(world)


def _show_container(world: demo_cluster.World) -> None:
    """Show the environment and device nodes of one container."""
    stage = world.stage
    seen = world.cluster.node(world.node_name).runtime.view(demo_cluster.NAMESPACE, _PARTITIONS_POD, _CONTAINER)
    stage.say(f"Container {_CONTAINER} names one request. By the CDI file of its partition it has:")
    stage.lines(*(f"{name}={value}" for name, value in sorted(seen.env.items())))
    stage.lines(" ".join(node.path for node in seen.edits.device_nodes))
    given = {name: value for name, value in seen.env.items() if name.startswith(_VARIABLE)}
    stage.check("it sees one GPU device, and none of the other containers'", len(given), 1)
    stage.check("the MIG device of that UUID exists in the hardware", set(given.values()) <= world.node.mig_uuids())


def show_sharing(world: demo_cluster.World) -> None:
    """Show three claims on one NIC, with share IDs and the consumed capacity after rounding."""
    stage = world.stage
    stage.chapter("Three claims share one NIC by bandwidth")
    stage.say("The NIC is still one device; each claim gets a share with its own ID. Bandwidth is allocated in steps of 10M (KEP-5075).")
    world.create(samples.load("30-shared-nic"))
    world.run(*_SHARED)
    claims = {pod: world.claim_of(pod) for pod in _SHARED}
    given = {pod: demo_cluster.results(claim)[0] for pod, claim in claims.items()}
    rows = [
        (
            pod,
            _requested(claims[pod]) or "(nothing)",
            _consumed(result),
            json_types.text(result, "device"),
            json_types.text(result, "shareID"),
        )
        for pod, result in given.items()
    ]
    stage.table(["POD", "REQUESTED", "CONSUMED", "NIC", "SHARE ID"], rows)
    stage.show(world.node.bandwidth_bars(stage.room))
    stage.check("all three are on one NIC", len({json_types.text(result, "device") for result in given.values()}), 1)
    stage.check("each has its own share ID", len({json_types.text(result, "shareID") for result in given.values()} - {""}), len(_SHARED))
    stage.check("consumed capacity is rounded up to the NIC's step", {pod: _consumed(result) for pod, result in given.items()}, _SHARED)
    installed = {share.id: quantity.Quantity.of(share.bandwidth) for share in world.node.look().shares}
    wanted = {json_types.text(result, "shareID"): quantity.Quantity.parse(_consumed(result)) for result in given.values()}
    stage.check("the hardware has these three shares, at these rates", installed, wanted)


def _requested(claim: json_types.Object) -> str:
    return json_types.text(claim, "spec", "devices", "requests", 0, "exactly", "capacity", "requests", _BANDWIDTH)


def _consumed(result: json_types.Object) -> str:
    return json_types.text(result, "consumedCapacity", _BANDWIDTH)


def show_crash(world: demo_cluster.World) -> None:
    """Kill the driver after it created a GPU instance and before it recorded that, restart it, and check the node."""
    world.stage.chapter("The driver is killed in the middle of a prepare, and recovers")
    before = world.node.look().counts.gpu_instances
    uid = _kill_during_prepare(world)
    _show_half_done_claim(world, uid, before)
    _restart_driver(world)
    _show_recovered_state(world, uid, before)


def _kill_during_prepare(world: demo_cluster.World) -> str:
    """Kill the driver when only the GPU instance exists; returns the claim's UID."""
    world.stage.say(f"Pod {_CRASH_POD} requests a 3g.20gb partition of the other GPU.")
    injected = fault_injection.Faults(world.node.machine.directory)
    injected.arm(_STALL)
    world.create(samples.load("60-one-partition"))
    stalled = world.stage.wait("the driver is preparing the claim", injected.stalled)
    pid = world.driver.pid
    world.stage.check("the driver hangs in the hardware call that creates the GPU instance", [stall.pid for stall in stalled], [pid])
    status = world.driver.kill()
    injected.disarm()
    world.stage.check(f"kill -9 {pid}: the driver is dead", status, -signal.SIGKILL)
    return json_types.text(world.claim_of(_CRASH_POD), "metadata", "uid")


def _show_half_done_claim(world: demo_cluster.World, uid: str, instances: int) -> None:
    seen = world.node.look()
    entry = seen.entry(uid)
    world.stage.show(world.node.memory_map(world.stage.room))
    world.stage.check("the hardware has a GPU instance that no container uses", seen.counts.gpu_instances, instances + 1)
    world.stage.check("no CDI file defines it", [file for file in seen.cdi_files if uid in file.name], [])
    world.stage.check("the journal has its claim in the state preparing", entry and entry.state, lifecycle.State.PREPARING)
    complaint = world.stage.wait("the kubelet reports the failure", lambda: world.warning_about(_CRASH_POD))
    world.stage.say(f"The kubelet: {complaint}", style="yellow")
    others = {name: demo_cluster.phase(world.pod(name)) for name in world.pods() if name != _CRASH_POD}
    world.stage.check(f"the {len(others)} other pods keep running", set(others.values()), {"Running"})


def _restart_driver(world: demo_cluster.World) -> None:
    world.driver.start()
    seconds = world.run(_CRASH_POD)
    world.stage.say(
        f"The driver is restarted (pid {world.driver.pid}). The kubelet retries, and {seconds:.2f} s later pod {_CRASH_POD} is running."
    )
    recovered = [line for line in world.driver.lines() if "recovered" in line and "undone=1" in line]
    world.stage.check("the driver's log reports that it rolled back one claim", len(recovered), 1)


def _show_recovered_state(world: demo_cluster.World, uid: str, instances: int) -> None:
    seen = world.node.look()
    entry = seen.entry(uid)
    claims = [claim for claim in world.claims() if demo_cluster.results(claim)]
    world.stage.say(f"Now: {seen.counts}.")
    world.stage.check("the claim is prepared", entry and entry.state, lifecycle.State.PREPARED)
    world.stage.check("the hardware has one more GPU instance than before, not two", seen.counts.gpu_instances, instances + 1)
    allocated = {json_types.text(claim, "metadata", "uid") for claim in claims}
    world.stage.check("the journal has exactly the claims that are allocated", {entry.claim.uid for entry in seen.entries}, allocated)
    world.stage.check(
        "there is one CDI file for each allocated device", seen.counts.cdi_files, sum(len(demo_cluster.results(claim)) for claim in claims)
    )
    world.stage.check("no claim is in progress", seen.counts.half_done, 0)


def show_end(world: demo_cluster.World) -> None:
    """Delete every pod, and check that no GPU instance, share, CDI file, journal entry or allocation is left."""
    stage = world.stage
    stage.chapter("All pods are deleted, and nothing is left")
    stage.say(f"Before: {world.node.look().counts}.")
    world.delete_pods()
    stage.wait("the claims are released", lambda: not any(map(demo_cluster.results, world.claims())))
    stage.check("nothing is left on the node", world.node.look().counts, node_view.Counts())
    held = [claim for claim in world.claims() if demo_cluster.results(claim) or json_types.items(claim, "status", "reservedFor")]
    stage.check("no claim is allocated or reserved", [json_types.text(claim, "metadata", "name") for claim in held], [])
    for kind in (resources.CLAIM, resources.CLAIM_TEMPLATE):
        world.api.delete_collection(kind, namespace=demo_cluster.NAMESPACE)
    world.api.delete(resources.NAMESPACE, demo_cluster.NAMESPACE)
