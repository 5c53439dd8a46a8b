"""Reads the objects of files and of a live cluster for ``drakit allocate``, ``simulate`` and ``plan``."""

import dataclasses
import pathlib
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from drakit.cli import options, output
from drakit.core import errors
from drakit_tools import live
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    from drakit_cluster.lint import Finding
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.objects.resources import Resource
    from drakit_cluster.scheduling.explain import whatif

_ROLLING: "Object" = {"maxSurge": "25%", "maxUnavailable": "25%"}
"""The defaults of Kubernetes."""


def _from_files(files: Sequence[str], gates: "FeatureGates", *, workloads: bool = False) -> "whatif.World":
    """Return the objects of files as the API server would store them; raises ConfigError for the first that it would reject.

    With ``workloads``, the pods of Deployments and their like are among the pods.
    """
    from drakit_cluster import manifests
    from drakit_cluster.lint import pod_templates, refusals
    from drakit_cluster.objects import naming
    from drakit_cluster.scheduling.explain import whatif

    documents = sources.read(files)
    if workloads:
        documents = pod_templates.with_pods(documents)
    intake = manifests.take(documents, gates)
    if intake.problems:
        raise errors.ConfigError(_first_of(refusals.check(intake.problems)))
    for dropped in intake.dropped:
        what = f"{dropped.field} is" if dropped.field else "the object is"
        output.note(f"{dropped.document.label}: {what} dropped, as by the API server: {dropped.why}")
    skipped = [document for document in documents if document.resource is None]
    output.note(sources.skip_notice(skipped))
    if any(map(pod_templates.has_any, skipped)):
        output.note("the pods of these workloads are not read here; drakit lint checks them")
    made = [
        (naming.label(accepted.object), workload) for accepted in intake.accepted if (workload := accepted.document.workload) is not None
    ]
    first = {workload: label for label, workload in reversed(made)}
    world = dataclasses.replace(
        whatif.World.of(intake.objects),
        workloads={label: f"{workload.place()}, {workload.label}" for label, workload in made},
        surging={label: workload.label for workload, label in first.items() if _surges(workload.body)},
    )
    _note_gangs(world.groups)
    return world


def _surges(workload: "Object") -> bool:
    """Return whether an update of a workload starts a new pod before it ends an old one: a Deployment whose maxUnavailable is 0 of its replicas."""
    from drakit_cluster.controllers.workloads import replicas
    from drakit_cluster.objects import json_types

    strategy = json_types.mapping(workload, "spec", "strategy")
    if workload.get("kind") != "Deployment" or strategy.get("type") == "Recreate":
        return False
    rolling = _ROLLING | json_types.mapping(strategy, "rollingUpdate")
    number = json_types.at(workload, "spec", "replicas")
    return replicas.limits({"rollingUpdate": rolling}, number if isinstance(number, int) else 1).unavailable == 0


def _first_of(mistakes: "Iterable[Finding]") -> str:
    """Return the first mistake with its place and fix, and the number of others. Equal ones of a workload's pods are one, at the workload."""
    texts: dict[str, None] = {}
    for mistake in mistakes:
        document, field = mistake.document.workload or mistake.document, mistake.document.written(mistake.field)
        where = f"{document.place(field)}, {document.label}"
        texts[f"{': '.join(filter(None, (where, field, mistake.text)))}; {mistake.fix}"] = None
    more = f" (and {len(texts) - 1} more; see drakit lint)" if len(texts) > 1 else ""
    return f"{next(iter(texts))}{more}"


def _note_gangs(groups: "Sequence[Object]") -> None:
    from drakit_cluster.objects import json_types, naming

    for group in groups:
        if json_types.at(group, "spec", "schedulingPolicy", "gang") is not None:
            output.note(f"PodGroup {naming.label(group)}: gang is ignored: its pods are decided one by one")


def drakits_classes(present: "Iterable[Object]") -> "list[Object]":
    """Return those of drakit's DeviceClasses whose names the present classes do not use."""
    from drakit_tools.demo import samples

    named = set(map(_name, present))
    return [device_class for device_class in samples.classes() if _name(device_class) not in named]


def note_added(classes: "Iterable[Object]", specs: "Iterable[Object]") -> "list[Object]":
    """Return those of drakit's DeviceClasses that the specs of claims name, and note them."""
    from drakit_cluster.objects import json_types

    wanted = {
        json_types.text(option, "deviceClassName")
        for spec in specs
        for request in json_types.objects(spec, "devices", "requests")
        for option in (json_types.mapping(request, "exactly"), *json_types.objects(request, "firstAvailable"))
    }
    named = [device_class for device_class in classes if _name(device_class) in wanted]
    for device_class in named:
        output.note(f"DeviceClass {_name(device_class)} is not in the files; drakit's own is used")
    return named


def _name(obj: "Object") -> str:
    from drakit_cluster.objects import json_types

    return json_types.text(obj, "metadata", "name")


def nodes_of(world: "whatif.World", wanted: Collection[str]) -> "list[Object]":
    """Return the nodes of a world, or only those of --node if there are any; raises ConfigError if one does not exist."""
    return [node for name, node in nodes_by_name(world, wanted, "--node").items() if not wanted or name in wanted]


def nodes_by_name(world: "whatif.World", wanted: Collection[str], option: str) -> "dict[str, Object]":
    """Return all nodes of a world by name; raises ConfigError, about the option, if one of those that are wanted does not exist."""
    nodes = {_name(node): node for node in world.known_nodes()}
    for name in wanted:
        if name not in nodes:
            raise errors.ConfigError(f"{option}: no node {name!r}; {options.meant(name, list(nodes))}")
    return nodes


def read(
    files: Sequence[str],
    gates: Sequence[str] | None,
    kubernetes: str | None,
    *,
    is_live: bool,
    kubeconfig: pathlib.Path | None,
    workloads: bool = False,
    pending: bool = True,
) -> "tuple[whatif.World, FeatureGates, str | None]":
    """Return the objects of files and of a live cluster, the gates, and the version, that of the server by default.

    Without ``pending``, those pods and claims of the cluster that wait are left out, as they are if the files have some.
    """
    version = kubernetes or (sources.server_version(kubeconfig) if is_live else None)
    chosen = sources.feature_gates(gates or [], version)
    if is_live:
        return *_with_live(files, kubeconfig, chosen, sources.gates(gates or []), workloads=workloads, pending=pending), version
    return _from_files(files, chosen, workloads=workloads), chosen, version


def with_drakits_classes(world: "whatif.World") -> "whatif.World":
    """Return the world with those of drakit's DeviceClasses that its requests name and that it lacks, and note them."""
    from drakit_cluster.objects import json_types

    specs = [
        *(json_types.mapping(claim, "spec") for claim in world.claims),
        *(json_types.mapping(template, "spec", "spec") for template in world.templates),
    ]
    return dataclasses.replace(world, classes=[*world.classes, *note_added(drakits_classes(world.classes), specs)])


def _with_live(
    files: Sequence[str],
    kubeconfig: pathlib.Path | None,
    gates: "FeatureGates",
    explicit: Collection[str],
    *,
    workloads: bool,
    pending: bool,
) -> "tuple[whatif.World, FeatureGates]":
    """Return the objects of files and of a live cluster, with the gates on whose fields the cluster has stored, except ``explicit`` ones.

    The files are read with these gates. Pending pods and claims of the cluster are included only with ``pending``, and only if the files have
    no pod, claim or template.
    """
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import resources
    from drakit_cluster.objects.features import Gate
    from drakit_cluster.scheduling.explain import whatif

    reading = live.read(kubeconfig)
    objects, chosen, version_notes = live.as_version(reading.objects, gates, explicit)
    world = _from_files(files, chosen, workloads=workloads)
    notes = list(reading.notes)
    has_requests = not pending or any((world.pods, world.claims, world.templates))
    own = {
        resources.SLICE: world.slices,
        resources.CLASS: world.classes,
        resources.CLAIM: world.claims,
        resources.NODE: world.nodes,
        resources.TAINT_RULE: world.taint_rules,
        resources.POD: world.pods,
        resources.POD_GROUP: world.groups,
    }
    merged: dict[Resource, list[Object]] = {}
    for kind, of_files in own.items():
        listed = list(objects[kind])
        if kind is resources.CLAIM:
            listed = [claim for claim in listed if not has_requests or pod_claims.is_allocated(claim)]
        if kind is resources.POD:
            listed = [pod for pod in listed if whatif.has_node(pod) or (not has_requests and whatif.wants_devices(pod))]
        if kind is resources.TAINT_RULE and not chosen.on(Gate.DEVICE_TAINT_RULES):
            listed = []
        kept, replaced = live.without_replaced(kind, listed, of_files)
        merged[kind] = [*kept, *of_files]
        notes += replaced
    notes += version_notes
    for note in notes:
        output.note(note.text)
    _note_gangs(objects[resources.POD_GROUP])
    live_world = whatif.World.of(lambda kind: merged.get(kind, ()))
    return dataclasses.replace(live_world, templates=world.templates, notes=notes, workloads=world.workloads, surging=world.surging), chosen


def print_doubts(world: "whatif.World") -> None:
    """Print after an answer why it may be wrong."""
    for note in world.notes:
        if note.doubtful:
            output.say(output.console(), f"warning: this answer may be wrong: {note.text}", hang=2)


def document_of_notes(world: "whatif.World") -> dict[str, object]:
    """Return what a document adds: ``notes``, and ``certain: false`` if the answer may be wrong; nothing without notes."""
    if not world.notes:
        return {}
    return {"certain": not any(note.doubtful for note in world.notes), "notes": [note.text for note in world.notes]}
