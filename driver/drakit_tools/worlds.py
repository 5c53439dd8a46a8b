"""Reads the objects of files and of a live cluster for ``drakit allocate``, ``simulate`` and ``plan``."""

import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.cli import output
from drakit.core import errors
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates, Gate
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource
    from drakit_cluster.scheduling.explain import whatif

_INDEX = re.compile(r"\[[^\]]*\]")


def from_files(files: Sequence[str], gates: "FeatureGates") -> "whatif.World":
    """Return the objects of files as the API server would store them; raises ConfigError for the first that it would reject."""
    from drakit_cluster import manifests
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
    return whatif.World.of(intake.objects)


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
    live_objects, chosen = _as_version(sources.live(kubeconfig, kinds, optional=[resources.TAINT_RULE, resources.POD]), gates, explicit)
    has_requests = any((world.pods, world.claims, world.templates))
    claims = [claim for claim in live_objects[resources.CLAIM] if not has_requests or pod_claims.is_allocated(claim)]
    pods = [pod for pod in live_objects[resources.POD] if whatif.has_node(pod) or (not has_requests and whatif.wants_devices(pod))]
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
        nodes=[*live_objects[resources.NODE], *world.nodes],
        taint_rules=[*live_objects[resources.TAINT_RULE], *world.taint_rules],
    )
    return complete, chosen


def _as_version(
    objects: "Mapping[Resource, Sequence[Object]]", gates: "FeatureGates", explicit: Collection[str]
) -> "tuple[Mapping[Resource, Sequence[Object]], FeatureGates]":
    """Return the objects of a live cluster as a version reads them, and the gates with those on whose fields its server has stored.

    Everything that is ignored or assumed is noted once.
    """
    from drakit_cluster.objects import features, naming, resources, versions
    from drakit_cluster.objects.schema import table

    notes: dict[str, str] = {}
    used: set[Gate] = set()
    read: dict[Resource, Sequence[Object]] = {**objects}
    for resource in objects:
        if resource.group != resources.RESOURCE_GROUP:
            continue
        entries = []
        for entry in objects[resource]:
            label = f"{resource.kind} {naming.label(entry)}"
            absent = {path: span for span, path, _ in features.absent_places(resource, entry, gates) if span}
            for path, span in absent.items():
                notes.setdefault(
                    _INDEX.sub("[]", path), f"{label}: {path} is ignored: Kubernetes {gates.version} lacks it; {versions.have_it(span)}"
                )
            on = [(gate, path) for gate, path, _ in features.disabled_fields(resource, entry, gates) if path not in absent]
            on += [(gate, "") for gate in features.gates_of_kind(resource) if not gates.on(gate)]
            for gate, path in on:
                because = f"because {label} has {path}" if path else f"because there is {label}"
                assumed = f"feature gate {gate} is taken to be on, {because}"
                notes.setdefault(
                    gate, f"{label}: feature gate {gate} is off, although the server stored it" if gate in explicit else assumed
                )
            used.update(gate for gate, _ in on if gate not in explicit)
            pruned, unknown = table.decode(resource, entry | {"apiVersion": resource.api_version, "kind": resource.kind})
            for path in unknown:
                notes.setdefault(_INDEX.sub("[]", path), f"{label}: {path} is ignored: drakit does not know it")
            entries.append(table.decode(resource, pruned, gates.decoding)[0] if absent else entry)
        read[resource] = entries
    for note in notes.values():
        output.note(note)
    return read, dataclasses.replace(gates, enabled=gates.enabled | used)
