"""What a container gets: the CDI file, and what the runtime makes of it."""

from drakit.cli.demo import onlooker, samples, world

_POD = "four-partitions"
_CONTAINER = "medium"
_VARIABLE = "GPU_DEVICE_"


def show(scene: world.World) -> None:
    """One request's CDI file, and the environment and device nodes of the container that asked for it."""
    stage = scene.stage
    stage.chapter("What a container sees")
    seen = scene.cluster.node(scene.node_name).runtime.view(samples.NAMESPACE, _POD, _CONTAINER)
    stage.say(f"Container {_CONTAINER} of pod {_POD} asked for one request. The kubelet gave its runtime one CDI device:")
    stage.show(seen.cdi_devices)
    files = [file for file in scene.node.look().cdi_files if onlooker.names(file, *seen.cdi_devices)]
    stage.check("one CDI file tells of it", len(files), 1)
    stage.show([f"{files[0]}:", *onlooker.cdi_document(files[0])])
    given = {name: value for name, value in seen.env.items() if name.startswith(_VARIABLE)}
    stage.say("So its container has:")
    stage.show([f"{name}={value}" for name, value in sorted(seen.env.items())])
    stage.show([" ".join(node.path for node in seen.edits.device_nodes)])
    stage.check("it sees one GPU device, and none of the other containers'", len(given), 1)
    stage.check("the MIG device of that UUID exists in the hardware", set(given.values()) <= scene.node.mig_uuids())
