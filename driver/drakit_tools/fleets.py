"""Builds the fleets of ``drakit simulate`` and ``drakit plan`` from mock machines, files or a live cluster."""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import machines
from drakit.cli import composition, options
from drakit.cli.commands import slices as publishing
from drakit.core import errors
from drakit.core.slices import resource_slice
from drakit.inputs import files as inputs
from drakit.telemetry import plurals
from drakit_tools import manifests as sources
from drakit_tools import worlds

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Object
    from drakit_cluster.scheduling.explain import whatif
    from drakit_cluster.simulation.fleet.groups import Fleet, Group
    from drakit_cluster.simulation.workload.tasks import Workload
    from drakit_cluster.simulation.workload.templates import PodTemplate

PROTOTYPE = "prototype"
NO_NODES = "there are no nodes; add --mock MACHINE:COUNT, --live, or files with ResourceSlices"
COUNT_MAX = 100_000
"""Nodes of one machine, and pods of one template."""

Machines = Annotated[
    list[str] | None,
    typer.Option(
        "--mock",
        "-m",
        metavar="MACHINE[:COUNT]",
        help="Add COUNT nodes with mock hardware of this machine: a name such as dgx-h100, or the path of a machine file. May be repeated.",
        autocompletion=options.machine_names,
    ),
]


def parsed(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return machines with their counts; raises ConfigError."""
    return [counted(text, "--mock", "MACHINE") for text in texts]


def counted(text: str, option: str, what: str) -> tuple[str, int]:
    """Return the name and the count, 1 without one, of a text such as ``dgx-h100:20``; raises ConfigError, about ``option``."""
    name, colon, count = text.rpartition(":")
    if not colon or "/" in count:  # A path may have a colon.
        return text, 1
    # The length comes first, because Python refuses to convert very long numbers.
    if not count.isdecimal() or len(count) > len(str(COUNT_MAX)) or not 1 <= int(count) <= COUNT_MAX:
        raise errors.ConfigError(f"{option} {text}: {count!r} is no count; write {what}:COUNT with a count from 1 to {COUNT_MAX}")
    return name, int(count)


def groups(counts: Sequence[tuple[str, int]]) -> "list[Group]":
    """Return the nodes of machines; raises SettingsError for a machine that is unknown."""
    from drakit_cluster.simulation.fleet import groups as fleet_groups

    made: list[Group] = []
    numbered: dict[str, int] = {}
    for name, count in counts:
        label = machines.load(name).name
        first = numbered.get(label, 0)
        made.append(fleet_groups.of_machine(label, slices_of(name), PROTOTYPE, count, first=first))
        numbered[label] = first + count
    return made


def slices_of(machine: str) -> "list[Object]":
    """Return the slices that drakit's drivers publish on a node like this machine."""
    with tempfile.TemporaryDirectory(prefix="drakit-") as folder:
        settings = options.read(mock=machine, folder=pathlib.Path(folder), node=PROTOTYPE, local=True)
        slice_sets = [
            publishing.slices_of(family, offered, resource_slice.Form.FLAT)
            for family, offered in publishing.inventories(composition.families(settings))
        ]
    return [item for slice_set in slice_sets for item in slice_set.objects if isinstance(item, dict)]


def known_world(
    files: Sequence[str],
    gates: Sequence[str],
    kubernetes: str | None,
    *,
    live: bool,
    kubeconfig: pathlib.Path | None,
    pending: bool = True,
) -> "tuple[whatif.World, FeatureGates]":
    """Return the objects of files and of a live cluster, with those of drakit's classes whose names are not in use; and version and gates.

    Without ``pending``, those pods and claims of the cluster that wait are left out.
    """
    world, chosen, _ = worlds.read(files, gates, kubernetes, is_live=live or kubeconfig is not None, kubeconfig=kubeconfig, pending=pending)
    return dataclasses.replace(world, classes=[*world.classes, *worlds.drakits_classes(world.classes)]), chosen


def assembled(made: "Sequence[Group]", world: "whatif.World", templates: "Sequence[PodTemplate]") -> "Fleet":
    """Return the fleet of machines and of the world's nodes; raises ConfigError if the two cannot be combined."""
    from drakit_cluster.client import pod_claims
    from drakit_cluster.objects import json_types
    from drakit_cluster.scheduling import taint_rules
    from drakit_cluster.simulation.fleet import groups as fleet_groups

    classes = {json_types.text(device_class, "metadata", "name"): device_class for device_class in world.classes}
    held = [claim for claim in world.claims if pod_claims.is_allocated(claim)]
    published = [taint_rules.tainted(entry, world.taint_rules) for entry in world.slices]
    nodes = world.nodes if published else ()
    fleet = fleet_groups.of_objects(published, nodes, classes, fleet_groups.Reads.of(templates), held)
    if fleet.shared and made:
        raise errors.ConfigError("--mock: cannot be combined with slices for several nodes")
    return dataclasses.replace(fleet, groups=[*fleet.groups, *made])


def require_nodes(made: "Sequence[Group]", world: "whatif.World") -> None:
    """Raise ConfigError if the input has no devices."""
    if not made and not world.slices:
        raise errors.ConfigError(NO_NODES)


def require_profiles(pods: "Iterable[PodTemplate]", nodes: "Iterable[Group]") -> None:
    """Raise WorkloadError for a MIG profile of shorthand that no GPU of the nodes has."""
    from drakit_cluster.simulation.workload import templates

    distinct = {id(entry): entry for group in nodes for entry in group.slices}
    templates.require_profiles(pods, distinct.values())


def workload_of(file: str, world: "whatif.World") -> "Workload":
    """Return the workload of a file, whose templates are in the world or shorthand; raises ConfigError and WorkloadError."""
    from drakit_cluster.simulation.workload import reading

    try:
        text = inputs.read_text(pathlib.Path(file), limit=sources.SIZE_MAX, encoding="utf-8-sig")
    except OSError as error:
        raise errors.ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    return reading.read(file, text, reading.Catalogue(world.templates))


@contextlib.contextmanager
def bad_input() -> Iterator[None]:
    """Convert errors of a simulation's input into ConfigError."""
    from drakit_cluster.objects.devices import AllocationError
    from drakit_cluster.objects.quantity import QuantityError
    from drakit_cluster.simulation.workload.templates import WorkloadError

    try:
        yield
    except (WorkloadError, AllocationError, QuantityError) as error:
        raise errors.ConfigError(str(error)) from error


def counted_nodes(fleet: "Fleet") -> str:
    """Return the number of nodes, in total and by machine, as text."""
    totals: dict[str, int] = {}
    for group in fleet.groups:
        totals[group.label] = totals.get(group.label, 0) + len(group.names)
    return f"{plurals.counted(fleet.size, 'node')} ({', '.join(f'{count} {label}' for label, count in totals.items())})"
