"""The chapters of the demo, in the order in which ``story`` plays them: publishing, partitions, sharing, a container, a crash, the end.

Each chapter shows one thing on the ``World`` and checks it.
"""

import json
import signal
import time
from collections.abc import Iterable

from drakit.cli.commands import slices
from drakit.core import inventory, lifecycle, quantity
from drakit.core.slices import resource_slice
from drakit.telemetry import plurals
from drakit_cluster.objects import json_types, resources
from drakit_gpu.mock import fault_injection
from drakit_tools.demo import demo_cluster, node_view

GATES = {"": {"DRAMixins": True}}
"""Feature gates of the demo's cluster. No released Kubernetes has DRAMixins, so it is off elsewhere."""

_PARTITIONS_POD = "four-partitions"
_WHOLE = "whole-gpu"
_DEVICE = "bandwidth"
_SHARED = {"training": "33340M", "storage": "14290M", "metrics": "100M"}
_CONTAINER_POD = "four-partitions"
_CONTAINER = "medium"
_VARIABLE = "GPU_DEVICE_"
_CRASH_POD = "one-partition"
_STALL = fault_injection.Fault(call="create_gpu_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.HANG)


def show_publishing(scene: demo_cluster.World) -> None:
    """Show the slices of both drivers with their size, and check that they have the devices of the hardware."""
    stage = scene.stage
    stage.chapter("The driver publishes what the node has")
    stage.say(
        f"A driver process (pid {scene.driver.pid}) talks to the API server over HTTPS and to the kubelet over unix sockets. Only the "
        f"hardware is a mock: {scene.node.machine.name}, as node {scene.node_name}."
    )
    rows, promises = [], []
    for family, offered in scene.node.offers():
        driver = family.spec.driver_name
        wanted = _names(offered)
        stored = stage.wait(f"{driver} has published", lambda driver=driver, wanted=wanted: _complete(scene, driver, wanted))  # type: ignore[misc]
        flat = _bytes(slices.sheaf(family, offered, resource_slice.Form.FLAT).objects)
        rows.append((driver, len(stored), len(wanted), _bytes(stored), flat, f"{100 * _bytes(stored) / flat:.0f}%"))
        promises.append(
            (
                f"{driver}: the API server has the {plurals.counted(len(wanted), 'device')} that the hardware offers",
                _published(stored),
                wanted,
            )
        )
    stage.table(["DRIVER", "SLICES", "DEVICES", "BYTES STORED", "WITHOUT MIXINS", "RATIO"], rows)
    stage.say(
        "Each possible MIG placement is a device. A mixin (KEP-4815) has attributes that many devices share. No released Kubernetes stores "
        "mixins; this cluster does, with the feature gate DRAMixins. On other clusters the driver writes the flat form."
    )
    for promise in promises:
        stage.check(*promise)


def _complete(scene: demo_cluster.World, driver: str, wanted: frozenset[str]) -> list[json_types.Object]:
    """Return the driver's slices if they have all devices, else an empty list."""
    stored = scene.slices(driver)
    return stored if len(_published(stored)) >= len(wanted) else []


def _names(offered: inventory.Inventory) -> frozenset[str]:
    return frozenset(device.name for device in offered.flat().devices)


def _published(stored: Iterable[json_types.Object]) -> frozenset[str]:
    return frozenset(
        json_types.text(device, "name") for slice_object in stored for device in json_types.objects(slice_object, "spec", "devices")
    )


def _bytes(objects: Iterable[object]) -> int:
    """Return the size of the specs as compact JSON, as the driver sends them."""
    specs = (entry["spec"] for entry in objects if isinstance(entry, dict))
    return sum(len(json.dumps(spec, separators=(",", ":")).encode()) for spec in specs)


def show_partitions(scene: demo_cluster.World) -> None:
    """Show 1g.5gb, 1g.5gb, 2g.10gb and 3g.20gb of one parent on the map of memory slices."""
    stage = scene.stage
    stage.chapter("One claim, four MIG partitions of one GPU")
    stage.say("KEP-4815's example: 1g.5gb, 1g.5gb, 2g.10gb and 3g.20gb, selected by CEL, with matchAttribute gpu.drakit.dev/parentUUID.")
    before = scene.node.look().counts
    scene.create(demo_cluster.load("10-mig-partitions"))
    seconds = scene.run(_PARTITIONS_POD)
    allocated = demo_cluster.results(scene.claim_of(_PARTITIONS_POD))
    stage.table(["REQUEST", "DEVICE"], [(json_types.text(result, "request"), json_types.text(result, "device")) for result in allocated])
    stage.say(f"From pod to running container in {seconds:.2f} s. The GPUs' memory slices now:")
    stage.show(scene.node.memory_map(stage.room))
    now = scene.node.look()
    parents = {str(grant.device.attributes["parentUUID"]) for entry in now.entries for grant in entry.grants}
    stage.check(
        "each request got a partition",
        sorted(json_types.text(result, "request") for result in allocated),
        ["large", "medium", "small-a", "small-b"],
    )
    stage.check("all four have the same parent GPU", len(parents), 1)
    stage.check("the hardware has four more GPU instances", now.counts.gpu_instances - before.gpu_instances, 4)


def show_whole(scene: demo_cluster.World) -> None:
    """Show that a claim for a whole GPU gets the GPU without partitions."""
    stage = scene.stage
    stage.chapter("A whole GPU next to a partitioned one")
    stage.say("Partitions and whole GPUs consume the same counters, so no GPU has to be partitioned in advance.")
    scene.create(demo_cluster.load("20-whole-gpu"))
    scene.run(_WHOLE)
    (given,) = demo_cluster.results(scene.claim_of(_WHOLE))
    stage.say(f"Pod {_WHOLE} got {json_types.text(given, 'device')}:")
    stage.show(scene.node.memory_map(stage.room))
    partitioned = {
        json_types.text(result, "device").partition("-mig-")[0] for result in demo_cluster.results(scene.claim_of(_PARTITIONS_POD))
    }
    stage.check("it is not the GPU that is partitioned", json_types.text(given, "device") in partitioned, wanted=False)


def show_sharing(scene: demo_cluster.World) -> None:
    """Show three claims on one NIC, with share IDs and the consumed capacity after rounding."""
    stage = scene.stage
    stage.chapter("Three claims share one NIC by bandwidth")
    stage.say("The NIC is still one device; each claim gets a share with its own ID. Bandwidth is allocated in steps of 10M (KEP-5075).")
    scene.create(demo_cluster.load("30-shared-nic"))
    scene.run(*_SHARED)
    given = {pod: _only(scene, pod) for pod in _SHARED}
    rows = [
        (pod, _asked(scene, pod) or "(nothing)", _consumed(result), json_types.text(result, "device"), json_types.text(result, "shareID"))
        for pod, result in given.items()
    ]
    stage.table(["POD", "REQUESTED", "CONSUMED", "NIC", "SHARE ID"], rows)
    stage.show(scene.node.bandwidth_bars(stage.room))
    stage.check("all three are on one NIC", len({json_types.text(result, "device") for result in given.values()}), 1)
    stage.check("each has its own share ID", len({json_types.text(result, "shareID") for result in given.values()} - {""}), len(_SHARED))
    stage.check("consumed capacity is rounded up to the NIC's step", {pod: _consumed(result) for pod, result in given.items()}, _SHARED)
    installed = {share.id: quantity.Quantity.of(share.bandwidth) for share in scene.node.look().shares}
    wanted = {json_types.text(result, "shareID"): quantity.Quantity.parse(_consumed(result)) for result in given.values()}
    stage.check("the hardware has these three shares, at these rates", installed, wanted)


def show_waiting(scene: demo_cluster.World) -> None:
    """A pod waits because the bandwidth is in use, and starts when another pod ends."""
    stage = scene.stage
    stage.chapter("A pod waits for bandwidth, and starts when another pod ends")
    *shared, second = demo_cluster.load("40-waiting")
    scene.create(shared)
    scene.run("first")
    stage.say("Pod first uses 50G of the same NIC. Pod second requests 50G too:")
    scene.create([second])
    reason = stage.wait("the scheduler has tried to place pod second", lambda: _lack_of_devices(scene, "second"))
    stage.say(f"{demo_cluster.phase(scene.pod('second'))}: {reason}", style="yellow")
    stage.check("nothing is allocated to pod second", demo_cluster.results(scene.claim_of("second")), [])
    stage.say("Now pod first is deleted.")
    began = time.monotonic()
    scene.delete_pods("first")
    scene.run("second")
    stage.say(f"Pod second runs, {time.monotonic() - began:.2f} s after the delete:")
    stage.show(scene.node.bandwidth_bars(stage.room))
    stage.check("pod second has its 50G", _consumed(_only(scene, "second")), "50G")


def _lack_of_devices(scene: demo_cluster.World, pod: str) -> str:
    """Return why no device fits; empty while the scheduler waits for something else, such as the claim of the pod's template."""
    reason = demo_cluster.unschedulable(scene.pod(pod))
    return reason if ", request " in reason else ""


def show_apart(scene: demo_cluster.World) -> None:
    """Show two requests that distinctAttribute places on two NICs."""
    stage = scene.stage
    stage.chapter("Two shares on two different NICs")
    stage.say("Both requests would fit on one NIC. distinctAttribute nic.drakit.dev/ifName keeps them apart.")
    scene.create(demo_cluster.load("50-two-nics"))
    scene.run("two-nics")
    allocated = demo_cluster.results(scene.claim_of("two-nics"))
    stage.table(
        ["REQUEST", "NIC", "CONSUMED", "SHARE ID"],
        [
            (json_types.text(result, "request"), json_types.text(result, "device"), _consumed(result), json_types.text(result, "shareID"))
            for result in allocated
        ],
    )
    stage.check("two requests, two NICs", len({json_types.text(result, "device") for result in allocated}), 2)


def _only(scene: demo_cluster.World, pod: str) -> json_types.Object:
    (result,) = demo_cluster.results(scene.claim_of(pod))
    return result


def _asked(scene: demo_cluster.World, pod: str) -> str:
    return json_types.text(scene.claim_of(pod), "spec", "devices", "requests", 0, "exactly", "capacity", "requests", _DEVICE)


def _consumed(result: json_types.Object) -> str:
    return json_types.text(result, "consumedCapacity", _DEVICE)


def show_container(scene: demo_cluster.World) -> None:
    """Show the CDI file of one request, and the environment and device nodes of its container."""
    stage = scene.stage
    stage.chapter("What a container sees")
    seen = scene.cluster.node(scene.node_name).runtime.view(demo_cluster.NAMESPACE, _CONTAINER_POD, _CONTAINER)
    stage.say(f"Container {_CONTAINER} of pod {_CONTAINER_POD} uses one request. The kubelet passed one CDI device to the runtime:")
    stage.lines(*seen.cdi_devices)
    files = [file for file in scene.node.look().cdi_files if node_view.names(file, *seen.cdi_devices)]
    stage.check("one CDI file defines it", len(files), 1)
    stage.lines(f"{files[0]}:", *node_view.cdi_summary(files[0]))
    given = {name: value for name, value in seen.env.items() if name.startswith(_VARIABLE)}
    stage.say("The container has:")
    stage.lines(*(f"{name}={value}" for name, value in sorted(seen.env.items())))
    stage.lines(" ".join(node.path for node in seen.edits.device_nodes))
    stage.check("it sees one GPU device, and none of the other containers'", len(given), 1)
    stage.check("the MIG device of that UUID exists in the hardware", set(given.values()) <= scene.node.mig_uuids())


def show_crash(scene: demo_cluster.World) -> None:
    """Kill the driver after it created a GPU instance and before it recorded that, restart it, and check the node."""
    scene.stage.chapter("The driver is killed in the middle of a prepare")
    scene.stage.say("Pod whole-gpu is deleted to free a GPU. Then a new pod requests a 3g.20gb partition.")
    scene.delete_pods("whole-gpu")
    before = scene.node.look().counts.gpu_instances
    uid = _kill_during_prepare(scene)
    _show_half_done_claim(scene, uid, before)
    _restart_driver(scene)
    _show_recovered_state(scene, uid, before)


def _kill_during_prepare(scene: demo_cluster.World) -> str:
    """Kill the driver when only the GPU instance exists; returns the claim's UID."""
    injected = fault_injection.Faults(scene.node.machine.directory)
    injected.arm(_STALL)
    scene.create(demo_cluster.load("60-one-partition"))
    stalled = scene.stage.wait("the driver is preparing the claim", injected.stalled)
    scene.stage.check(
        "the driver hangs in the hardware call that creates the GPU instance", [stall.pid for stall in stalled], [scene.driver.pid]
    )
    pid, status = scene.driver.pid, scene.driver.kill()
    injected.disarm()
    scene.stage.check(f"kill -9 {pid}: the driver is dead", status, -signal.SIGKILL)
    return demo_cluster.uid(scene.claim_of(_CRASH_POD))


def _show_half_done_claim(scene: demo_cluster.World, uid: str, instances: int) -> None:
    seen = scene.node.look()
    entry = seen.entry(uid)
    scene.stage.show(scene.node.memory_map(scene.stage.room))
    scene.stage.check("the hardware has a GPU instance that no container uses", seen.counts.gpu_instances, instances + 1)
    scene.stage.check("no CDI file defines it", seen.files_of(uid), ())
    scene.stage.check("the journal has its claim in the state preparing", entry and entry.state, lifecycle.State.PREPARING)
    complaint = scene.stage.wait("the kubelet reports the failure", lambda: scene.warning_about(_CRASH_POD))
    scene.stage.say(f"The kubelet: {complaint}", style="yellow")
    others = {name: demo_cluster.phase(scene.pod(name)) for name in scene.pods() if name != _CRASH_POD}
    scene.stage.check(f"the {len(others)} other pods keep running", set(others.values()), {"Running"})


def _restart_driver(scene: demo_cluster.World) -> None:
    scene.driver.start()
    seconds = scene.run(_CRASH_POD)
    scene.stage.say(
        f"The driver is restarted (pid {scene.driver.pid}). The kubelet retries, and {seconds:.2f} s later pod {_CRASH_POD} is running."
    )
    recovered = [line for line in scene.driver.lines() if "recovered" in line and "undone=1" in line]
    scene.stage.check("the driver's log reports that it rolled back one claim", len(recovered), 1)


def _show_recovered_state(scene: demo_cluster.World, uid: str, instances: int) -> None:
    seen = scene.node.look()
    entry = seen.entry(uid)
    allocated = {demo_cluster.uid(claim): len(demo_cluster.results(claim)) for claim in scene.claims() if demo_cluster.results(claim)}
    scene.stage.say(f"Now: {seen.counts}.")
    scene.stage.check("the claim is prepared", entry and entry.state, lifecycle.State.PREPARED)
    scene.stage.check("the hardware has one more GPU instance than before, not two", seen.counts.gpu_instances, instances + 1)
    scene.stage.check("the journal has exactly the claims that are allocated", {entry.claim.uid for entry in seen.entries}, set(allocated))
    scene.stage.check("there is one CDI file for each allocated device", seen.counts.cdi_files, sum(allocated.values()))
    scene.stage.check("no claim is in progress", seen.counts.half_done, 0)


def show_end(scene: demo_cluster.World) -> None:
    """Delete every pod, and check that no GPU instance, share, CDI file, journal entry or allocation is left."""
    stage = scene.stage
    stage.chapter("All pods are deleted, and nothing is left")
    stage.say(f"Before: {scene.node.look().counts}.")
    scene.delete_pods(*scene.pods())
    stage.wait("the claims are released", lambda: not any(map(demo_cluster.results, scene.claims())))
    stage.check("nothing is left on the node", scene.node.look().counts, node_view.Counts())
    stage.check(
        "no claim is allocated or reserved", [json_types.text(claim, "metadata", "name") for claim in scene.claims() if _is_held(claim)], []
    )
    for kind in (resources.CLAIM, resources.CLAIM_TEMPLATE):
        scene.api.delete_collection(kind, namespace=demo_cluster.NAMESPACE)
    scene.api.delete(resources.NAMESPACE, demo_cluster.NAMESPACE)


def _is_held(claim: json_types.Object) -> bool:
    return bool(demo_cluster.results(claim) or json_types.items(claim, "status", "reservedFor"))
