"""``drakit free``: what is free, by type and node, and what still fits together."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drakit import exits, extras
from drakit import settings as values
from drakit.cli import composition, options, output, views
from drakit.cli.commands import slices as publishing
from drakit.core import errors, lifecycle
from drakit.core.slices import resource_slice
from drakit_tools import manifests as sources
from drakit_tools import worlds

if TYPE_CHECKING:
    from drakit_cluster.objects.features import FeatureGates
    from drakit_cluster.objects.json_types import Json, Object
    from drakit_cluster.scheduling.explain import whatif


@options.quietly
@sources.answering()
def free(
    given: sources.Given = None,
    files: sources.Files = None,
    live: sources.Live = False,
    kubeconfig: sources.Kubeconfig = None,
    mock: options.Mock = None,
    folder: options.Folder = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="NAME", help="Use only this node; with --mock, its name. May be repeated. Default: all known nodes."
        ),
    ] = None,
    config: options.Config = None,
    assignments: options.Set = None,
    gates: sources.Gates = None,
    kubernetes: sources.Kubernetes = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Show which devices are free, by type and node, and what still fits together.

    FITS is how many devices of a type fit at the same time if no other type is allocated, out of those that would fit on empty nodes. A GPU that fits
    seven small partitions fits one large one, but not both: FITS TOGETHER has sets of types that fit at the same time, the largest types first, the
    smallest first, and shared devices first. For shared devices, SHARES is how many claims with the default amounts they still take.

    The rules are those of Kubernetes' scheduler, for a claim without tolerations. Tainted devices and incomplete pools are not free and are named.
    Claims that wait for devices, and claims in deletion that still hold some, are named too.

    The devices are those of a cluster (--live), of files, or of a mock machine with the claims that are prepared on it (--mock).

    Exit status is 0 if a device is free, 1 if none is, and 2 for invalid input.

    [bold]Examples[/bold]

      drakit free --live

      drakit free --live --node node-1 -o json

      drakit free --mock dgx-a100-40gb

      kubectl get resourceslices,resourceclaims -A -o yaml | drakit free -
    """
    wanted = [*(given or []), *(files or [])]
    extras.require_local_cluster()
    is_live = live or kubeconfig is not None
    if not wanted and not is_live and mock is None:
        raise errors.ConfigError("there are no devices; add --live, --mock MACHINE, or FILE")
    if mock is not None and (is_live or wanted):
        raise errors.ConfigError("--mock is a node of its own; leave it out with --live and with files")
    world, chosen, _ = worlds.read(wanted, gates, kubernetes, is_live=is_live, kubeconfig=kubeconfig)
    if mock is not None:
        name = options.one_node(nodes)
        world = _with_machine(world, options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=name, local=True))
    worlds.nodes_of(world, nodes or [])  # Raises for an unknown name.
    _report(world, chosen, nodes, form)


def _report(world: "whatif.World", gates: "FeatureGates", nodes: Sequence[str] | None, form: options.Format) -> None:
    from drakit_tools.free import report, survey

    found = survey.survey(world, gates, only=nodes)
    if form is options.Format.TABLE:
        report.put(found)
        worlds.print_doubts(world)
    else:
        output.document({**report.document(found), **worlds.document_of_notes(world)}, form)
    if not report.is_any(found):
        raise typer.Exit(exits.Exit.NEGATIVE)


def _with_machine(world: "whatif.World", settings: values.Settings) -> "whatif.World":
    """Add the slices that drakit's drivers publish on a mock machine, and the claims that are prepared on it."""
    slices: list[Object] = []
    claims: dict[str, Object] = {}
    for family, seen in views.every(settings):
        if seen.error is not None:
            raise seen.error
        output.warn(seen.trouble)
        made = publishing.slices_of(family, seen.offered, resource_slice.Form.FLAT)
        slices += [entry for entry in made.objects if isinstance(entry, dict)]
        for entry in seen.entries:
            _add_results(claims, entry, _results(family, entry))
    return dataclasses.replace(world, slices=[*world.slices, *slices], claims=[*world.claims, *claims.values()])


def _results(family: composition.NodeFamily, entry: lifecycle.Entry) -> "list[Json]":
    """Return the allocation results of a prepared claim's devices."""
    results: list[Json] = []
    for grant in entry.grants:
        result: Object = {
            "request": grant.request,
            "driver": family.spec.driver_name,
            "pool": grant.device.pool_on(family.spec.identity.pool),
            "device": grant.device.name,
            "adminAccess": grant.admin_access,
        }
        if grant.share_id is not None:
            result["shareID"] = grant.share_id
            result["consumedCapacity"] = {name: str(amount) for name, amount in grant.consumed_capacity.items()}
        results.append(result)
    return results


def _add_results(claims: "dict[str, Object]", entry: lifecycle.Entry, results: "Sequence[Json]") -> None:
    """Add the results of one driver to a claim, which several drivers may have prepared."""
    from drakit_cluster.objects import json_types

    ref = entry.claim
    metadata: Object = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
    before = json_types.items(claims.get(ref.uid, {}), "status", "allocation", "devices", "results")
    claims[ref.uid] = {"metadata": metadata, "status": {"allocation": {"devices": {"results": [*before, *results]}}}}
