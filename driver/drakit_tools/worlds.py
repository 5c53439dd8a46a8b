"""Reads the objects of files and of a live cluster for ``drakit allocate``, ``simulate`` and ``plan``."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drakit.cli import output
from drakit.core import errors
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.scheduling.explain import whatif


def from_files(files: Sequence[str], gates: "FeatureGates") -> "whatif.World":
    """Return the objects of files as the API server would store them; raises ConfigError for the first that it would reject."""
    from drakit_cluster import manifests
    from drakit_cluster.objects import json_types, naming
    from drakit_cluster.scheduling.explain import whatif

    documents = sources.read(files)
    intake = manifests.take(documents, gates)
    if intake.problems:
        lines = [
            ": ".join(filter(None, (f"{problem.document.place(problem.field)}, {problem.document.label}", problem.field, problem.text)))
            for problem in intake.problems
        ]
        more = f" (and {len(lines) - 1} more; see drakit lint)" if len(lines) > 1 else ""
        raise errors.ConfigError(f"{lines[0]}{more}")
    for dropped in intake.dropped:
        output.note(f"{dropped.document.label}: {dropped.field} is dropped, as by the API server: feature gate {dropped.gate} is off")
    output.note(sources.skip_notice([document for document in documents if document.resource is None]))
    world = whatif.World.of(intake.objects)
    for group in world.groups:
        if json_types.at(group, "spec", "schedulingPolicy", "gang") is not None:
            output.note(f"PodGroup {naming.label(group)}: gang is ignored: its pods are decided one by one")
    return world


def with_live(world: "whatif.World", kubeconfig: pathlib.Path | None) -> "whatif.World":
    """Add the objects of a live cluster. Its pending pods and claims are included only if the files have no pod, claim or template."""
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import resources
    from drakit_cluster.scheduling.explain import whatif

    kinds = (resources.SLICE, resources.CLASS, resources.CLAIM, resources.NODE)
    live_objects = sources.live(kubeconfig, kinds, optional=[resources.TAINT_RULE, resources.POD, resources.POD_GROUP])
    has_requests = any((world.pods, world.claims, world.templates))
    claims = [claim for claim in live_objects[resources.CLAIM] if not has_requests or pod_claims.is_allocated(claim)]
    pods = [pod for pod in live_objects[resources.POD] if whatif.has_node(pod) or (not has_requests and whatif.wants_devices(pod))]
    return dataclasses.replace(
        world,
        slices=[*live_objects[resources.SLICE], *world.slices],
        classes=[*live_objects[resources.CLASS], *world.classes],
        claims=[*claims, *world.claims],
        pods=[*pods, *world.pods],
        groups=[*live_objects[resources.POD_GROUP], *world.groups],
        nodes=[*live_objects[resources.NODE], *world.nodes],
        taint_rules=[*live_objects[resources.TAINT_RULE], *world.taint_rules],
    )
