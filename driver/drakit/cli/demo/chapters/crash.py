"""SIGKILL in the middle of a prepare, and how the next driver and the kubelet's retry put everything right."""

import signal

from drakit.cli.demo import samples, world
from drakit.core import lifecycle
from drakit.devices.gpu.mock import fault_injection

_POD = "one-partition"
_STALL = fault_injection.Fault(call="create_gpu_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.HANG)


def show(scene: world.World) -> None:
    """Kill the driver between making a GPU instance and remembering it; start it again; count."""
    scene.stage.chapter("The driver is killed in the middle of a prepare")
    scene.stage.say("Pod whole-gpu is deleted, so that a GPU is free. Then a pod asks for a 3g.20gb partition of it.")
    scene.delete_pods("whole-gpu")
    before = scene.node.look().counts.gpu_instances
    uid = _kill_in_the_middle(scene)
    _show_wreck(scene, uid, before)
    _start_again(scene)
    _show_order(scene, uid, before)


def _kill_in_the_middle(scene: world.World) -> str:
    """Kill the driver when the new GPU instance exists and nothing else of it; returns the claim's UID."""
    injected = fault_injection.Faults(scene.node.machine.directory)
    injected.arm(_STALL)
    scene.create(samples.load("60-one-partition"))
    stalled = scene.stage.wait("the driver is in the middle of its prepare", injected.stalled)
    scene.stage.check(
        "the driver hangs in the hardware call that makes the GPU instance", [stall.pid for stall in stalled], [scene.driver.pid]
    )
    pid, status = scene.driver.pid, scene.driver.kill()
    injected.disarm()
    scene.stage.check(f"kill -9 {pid}: the driver is dead", status, -signal.SIGKILL)
    return world.uid(scene.claim_of(_POD))


def _show_wreck(scene: world.World, uid: str, instances: int) -> None:
    found = scene.node.look()
    entry = found.entry(uid)
    scene.stage.show(scene.node.memory_map())
    scene.stage.check("the hardware has a GPU instance that no container uses", found.counts.gpu_instances, instances + 1)
    scene.stage.check("no CDI file tells of it", found.files_of(uid), ())
    scene.stage.check("the journal says that its claim was being prepared", entry and entry.state, lifecycle.State.PREPARING)
    complaint = scene.stage.wait("the kubelet complains", lambda: scene.warning_about(_POD))
    scene.stage.say(f"The kubelet: {complaint}", style="yellow")
    others = {name: world.phase(scene.pod(name)) for name in scene.pods() if name != _POD}
    scene.stage.check(f"the {len(others)} other pods run on", set(others.values()), {"Running"})


def _start_again(scene: world.World) -> None:
    scene.driver.start()
    seconds = scene.run(_POD)
    scene.stage.say(
        f"The driver is started again (pid {scene.driver.pid}). {seconds:.2f} s later pod {_POD} runs, by the kubelet's own retry."
    )
    recovered = [line for line in scene.driver.lines() if "recovered" in line and "undone=1" in line]
    scene.stage.check("the driver's log says that it undid one half-done claim", len(recovered), 1)


def _show_order(scene: world.World, uid: str, instances: int) -> None:
    found = scene.node.look()
    entry = found.entry(uid)
    allocated = {world.uid(claim): len(world.results(claim)) for claim in scene.claims() if world.results(claim)}
    scene.stage.say(f"Now: {found.counts}.")
    scene.stage.check("the claim is prepared", entry and entry.state, lifecycle.State.PREPARED)
    scene.stage.check("no GPU instance too many: one more than before, not two", found.counts.gpu_instances, instances + 1)
    scene.stage.check("the journal has exactly the claims that are allocated", {entry.claim.uid for entry in found.entries}, set(allocated))
    scene.stage.check("there is one CDI file for each allocated device", found.counts.cdi_files, sum(allocated.values()))
    scene.stage.check("nothing is half done", found.counts.half_done, 0)
