"""Reads the objects of files and of a live cluster for ``drakit allocate``, ``simulate`` and ``plan``."""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.cli import output
from drakit.core import errors
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource
    from drakit_cluster.scheduling.explain import whatif

_INDEX = re.compile(r"\[[^\]]*\]")


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
        what = f"{dropped.field} is" if dropped.field else "the object is"
        output.note(f"{dropped.document.label}: {what} dropped, as by the API server: {dropped.why}")
    output.note(sources.skip_notice([document for document in documents if document.resource is None]))
    world = whatif.World.of(intake.objects)
    for group in world.groups:
        if json_types.at(group, "spec", "schedulingPolicy", "gang") is not None:
            output.note(f"PodGroup {naming.label(group)}: gang is ignored: its pods are decided one by one")
    return world


def with_live(
    world: "whatif.World", kubeconfig: pathlib.Path | None, gates: "FeatureGates", explicit: Collection[str]
) -> "tuple[whatif.World, FeatureGates]":
    """Add the objects of a live cluster, and turn the gates on whose fields they have, except ``explicit`` ones.

    Pending pods and claims of the cluster are included only if the files have no pod, claim or template.
    """
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import json_types, resources
    from drakit_cluster.objects.versions import Rule
    from drakit_cluster.scheduling.explain import whatif

    kinds = (resources.SLICE, resources.CLASS, resources.CLAIM, resources.NODE)
    live_objects = sources.live(kubeconfig, kinds, optional=[resources.TAINT_RULE, resources.POD, resources.POD_GROUP])
    has_requests = any((world.pods, world.claims, world.templates))
    claims = [claim for claim in live_objects[resources.CLAIM] if not has_requests or pod_claims.is_allocated(claim)]
    pods = [pod for pod in live_objects[resources.POD] if whatif.has_node(pod) or (not has_requests and whatif.wants_devices(pod))]
    chosen = _with_used_gates(live_objects, gates, explicit)
    if not chosen.follows(Rule.SELECTOR_REQUIRED):
        for rule in live_objects[resources.TAINT_RULE]:
            if json_types.at(rule, "spec", "deviceSelector") is None:
                name = json_types.text(rule, "metadata", "name")
                output.note(
                    f"DeviceTaintRule {name} has no deviceSelector: schedulers before 1.38 taint every device with it, against the API"
                )
    complete = dataclasses.replace(
        world,
        slices=[*live_objects[resources.SLICE], *world.slices],
        classes=[*live_objects[resources.CLASS], *world.classes],
        claims=[*claims, *world.claims],
        pods=[*pods, *world.pods],
        groups=[*live_objects[resources.POD_GROUP], *world.groups],
        nodes=[*live_objects[resources.NODE], *world.nodes],
        taint_rules=[*live_objects[resources.TAINT_RULE], *world.taint_rules],
    )
    return complete, chosen


def _with_used_gates(objects: "Mapping[Resource, Sequence[Object]]", gates: "FeatureGates", explicit: Collection[str]) -> "FeatureGates":
    """Return the gates with those on whose fields a server stored, and note them. Fields that drakit or the version does not have are noted."""
    from drakit_cluster.objects import errors as object_errors
    from drakit_cluster.objects import features, naming, resources, versions
    from drakit_cluster.objects.schema import table

    notes: dict[str, str] = {}
    used = set()
    for resource, found in objects.items():
        for entry in found if resource.group == resources.RESOURCE_GROUP else ():
            label = f"{resource.kind} {naming.label(entry)}"
            with contextlib.suppress(object_errors.BadRequestError):
                for path in table.decode(resource, entry | {"apiVersion": resource.api_version})[1]:
                    notes.setdefault(_INDEX.sub("[]", path), f"{label}: {path} is not known to drakit and is ignored")
            absent = [place for place in features.absent_places(resource, entry, gates) if place[0]]
            for span, path, _ in absent:
                why = f"Kubernetes {gates.version} does not have it ({versions.have_it(span)})"
                notes.setdefault(_INDEX.sub("[]", path), f"{label}: {path} is ignored: {why}")
            for gate, path, _ in features.disabled_fields(resource, entry, gates):
                if path in {place[1] for place in absent}:
                    continue
                if gate in explicit:
                    notes.setdefault(gate, f"{label}: {path} is ignored: feature gate {gate} is off")
                else:
                    used.add(gate)
                    notes.setdefault(gate, f"feature gate {gate} is taken to be on, because {label} has {path}")
    for note in notes.values():
        output.note(note)
    return dataclasses.replace(gates, enabled=gates.enabled | used)
