"""All pods go, and nothing stays behind."""

from drakit.cli.demo import onlooker, samples, world
from drakit_cluster import json_types, resources


def show(scene: world.World) -> None:
    """Delete every pod; no GPU instance, share, CDI file, journal entry or allocation is left."""
    stage = scene.stage
    stage.chapter("All pods are deleted, and nothing is left")
    stage.say(f"Before: {scene.node.look().counts}.")
    scene.delete_pods(*scene.pods())
    stage.wait("the claims are given back", lambda: not any(map(world.results, scene.claims())))
    stage.check("nothing is left on the node", scene.node.look().counts, onlooker.Counts())
    stage.check(
        "no claim is allocated or reserved", [json_types.text(claim, "metadata", "name") for claim in scene.claims() if _is_held(claim)], []
    )
    for kind in (resources.CLAIM, resources.CLAIM_TEMPLATE):
        scene.api.delete_collection(kind, namespace=samples.NAMESPACE)
    scene.api.delete(resources.NAMESPACE, samples.NAMESPACE)


def _is_held(claim: json_types.Object) -> bool:
    return bool(world.results(claim) or json_types.items(claim, "status", "reservedFor"))
