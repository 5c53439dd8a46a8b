"""KEP-4815's claim: four partitions of one GPU, made on demand; and a whole GPU beside them."""

from drakit.cli.demo import samples, world
from drakit_cluster import json_types

_POD = "four-partitions"
_WHOLE = "whole-gpu"


def show(scene: world.World) -> None:
    """1g.5gb, 1g.5gb, 2g.10gb and 3g.20gb with one parent, on the memory-slice map; then a whole GPU."""
    stage = scene.stage
    stage.chapter("One claim, four MIG partitions of one GPU")
    stage.say("KEP-4815's example: 1g.5gb, 1g.5gb, 2g.10gb and 3g.20gb, selected by CEL, with matchAttribute gpu.drakit.dev/parentUUID.")
    before = scene.node.look().counts
    scene.create(samples.load("10-mig-partitions"))
    seconds = scene.run(_POD)
    found = world.results(scene.claim_of(_POD))
    stage.table(["REQUEST", "DEVICE"], [(json_types.text(one, "request"), json_types.text(one, "device")) for one in found])
    stage.say(f"From pod to running container in {seconds:.2f} s. The GPUs' memory slices now:")
    stage.show(scene.node.memory_map())
    now = scene.node.look()
    parents = {str(grant.device.attributes["parentUUID"]) for entry in now.entries for grant in entry.grants}
    stage.check(
        "each request got a partition", sorted(json_types.text(one, "request") for one in found), ["large", "medium", "small-a", "small-b"]
    )
    stage.check("all four have the same parent GPU", len(parents), 1)
    stage.check("the hardware has four GPU instances more", now.counts.gpu_instances - before.gpu_instances, 4)


def show_whole(scene: world.World) -> None:
    """A whole GPU: the one without partitions."""
    stage = scene.stage
    stage.chapter("A whole GPU, beside partitioned ones")
    stage.say("Partitions and whole GPUs draw on the same counters, so nobody decides beforehand which GPU is which.")
    scene.create(samples.load("20-whole-gpu"))
    scene.run(_WHOLE)
    (given,) = world.results(scene.claim_of(_WHOLE))
    stage.say(f"Pod {_WHOLE} was given {json_types.text(given, 'device')}:")
    stage.show(scene.node.memory_map())
    partitioned = {json_types.text(one, "device").partition("-mig-")[0] for one in world.results(scene.claim_of(_POD))}
    stage.check("it is not the GPU that is partitioned", json_types.text(given, "device") in partitioned, wanted=False)
