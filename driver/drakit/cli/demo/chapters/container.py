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
    (device,) = seen.cdi_devices
    files = [file for file in scene.node.look().files_of(world.uid(scene.claim_of(_POD))) if onlooker.names(file, device)]
    stage.check("one CDI file tells of the container's device", len(files), 1)
    stage.say(f"{files[0]}:")
    stage.show(onlooker.cdi_document(files[0]))
    stage.say(f"So container {_CONTAINER} of pod {_POD} has, besides its own:")
    given = {name: value for name, value in seen.env.items() if name.startswith(_VARIABLE)}
    stage.table(["ENVIRONMENT", ""], list(given.items()))
    stage.table(["DEVICE NODE", "NUMBERS"], [(node.path, f"{node.major}:{node.minor}") for node in seen.edits.device_nodes])
    stage.check("it sees one GPU device and none of the other containers'", len(given), 1)
    stage.check("that MIG device exists in the hardware", set(given.values()) <= scene.node.mig_uuids())
