"""Claims and pods without other mistakes that fit on no node even if nothing is allocated. The allocator itself decides.

Such mistakes are constraints that no set of devices satisfies, requests that exclude each other by counters, and more shares than capacity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from drakit_cluster.lint import findings
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted, Intake
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.scheduling import extended
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.explain import whatif
from drakit_cluster.scheduling.explain.obstacles import Obstacle

_FIX = "run drakit allocate --why with the same files, which shows the reason for each device"


def check(
    intake: Intake, claims: Sequence[Accepted], pods: Sequence[Accepted], gates: FeatureGates, compared: KnownErrors
) -> Iterator[Finding]:
    """Yield a warning for each claim or template, and each pod with extended resources, that fits on no node, also if it fits only without
    the known errors ``compared``.

    Requests of missing classes are skipped, because their selectors are unknown.
    """
    classes = {json_types.text(device_class, "metadata", "name") for device_class in intake.objects(resources.CLASS)}
    world = whatif.World.of(lambda kind: intake.objects(kind) if kind is not resources.CLAIM else _free(intake.objects(kind)))
    scheduler = whatif.Scheduler(replace(world, pods=()), gates, world.known_nodes(), compared=compared)
    for accepted in claims:
        template = accepted.document.resource is resources.CLAIM_TEMPLATE
        path = "spec.spec.devices" if template else "spec.devices"
        named = _classes(json_types.mapping(accepted.object, *path.split(".")))
        if named and named <= classes:
            claim = whatif.claim_of(accepted.object) if template else accepted.object
            decision = scheduler.alone(claim)
            if not decision.fits:
                yield _finding(accepted, path, decision)
            if difference := decision.difference or scheduler.beside_itself(claim):
                text, _, fix = difference.rpartition("; ")
                yield findings.warning(accepted.document, path, text, fix)
    served = extended.class_names(intake.objects(resources.CLASS), gates)
    for pod in pods:
        if extended.requested(pod.object) & served.keys():
            decision = scheduler.alone_for(pod.object)
            if decision.why and not decision.fits:
                yield _finding(pod, "spec.containers", decision)


def _free(claims: Sequence[json_types.Object]) -> list[json_types.Object]:
    """Return the claims without their allocation."""
    return [{name: value for name, value in claim.items() if name != "status"} for claim in claims]


def _classes(devices: json_types.Object) -> set[str]:
    named: set[str] = set()
    for request in json_types.objects(devices, "requests"):
        options = [json_types.mapping(request, "exactly"), *json_types.objects(request, "firstAvailable")]
        named |= {json_types.text(option, "deviceClassName") for option in options if option}
    return named


def _finding(accepted: Accepted, path: str, decision: whatif.Decision) -> Finding:
    """Return a finding with the obstacles of the node that has the fewest."""
    by_node = sorted(decision.why.items(), key=lambda item: len(item[1]))
    if not by_node:
        return findings.warning(accepted.document, path, f"fits on no node: {decision.message}", _FIX)
    node, obstacles = by_node[0]
    text = f"fits on no node, even if nothing is allocated; on {node}: {'; '.join(map(_obstacle_text, obstacles))}"
    return findings.warning(accepted.document, path, text, _FIX)


def _obstacle_text(obstacle: Obstacle) -> str:
    subject = f"request {obstacle.request} " if obstacle.request else ""
    return f"{subject}{obstacle.text}{f' ({obstacle.groups[0].text})' if obstacle.groups else ''}"
