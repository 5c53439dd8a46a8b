"""What a driver owes the scheduler: ResourceSlices that the API takes and that make whole pools. ``drakit lint`` has most of the rules."""

import collections
import json
from collections.abc import Callable, Mapping, Sequence

from drakit.testing import report as reports
from drakit.testing.conformance.claims import Claim
from drakit_cluster import lint, manifests
from drakit_cluster.lint import Severity
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object

_SHOWN = 3


def checks(slices: Sequence[Object] | None, claims: Sequence[Claim]) -> Mapping[str, Callable[[], None]]:
    """Return the checks of a driver's slices; without any API server (None) they do not apply."""

    def need() -> Sequence[Object]:
        if slices is None:
            raise reports.NotApplicableError("slices are not known without --kubeconfig")
        if not slices:
            raise reports.AdviceError("the driver has published no ResourceSlice for this node: no claim can be allocated to it")
        return slices

    return {
        "slices: every pool is complete, in one generation": lambda: _whole(need()),
        "slices: the API's limits hold, and counters add up": lambda: _lint(need()),
        "slices: they offer the devices of the claims": lambda: _offer(need(), claims),
    }


def _whole(slices: Sequence[Object]) -> None:
    pools: dict[str, list[Object]] = collections.defaultdict(list)
    for one in slices:
        pools[json_types.text(one, "spec", "pool", "name")].append(one)
    wrong = []
    for pool, members in pools.items():
        generations = sorted({json_types.number(one, "spec", "pool", "generation") for one in members})
        newest = [one for one in members if json_types.number(one, "spec", "pool", "generation") == generations[-1]]
        said = {json_types.number(one, "spec", "pool", "resourceSliceCount") for one in newest}
        if said != {len(newest)}:
            wrong.append(
                f"pool {pool} has {len(newest)} slices of generation {generations[-1]}, and resourceSliceCount says {sorted(said)}"
            )
        elif len(generations) > 1:
            raise reports.AdviceError(f"pool {pool} still has slices of generations {generations[:-1]}; delete them")
    if wrong:
        raise AssertionError("; ".join(wrong))


def _lint(slices: Sequence[Object]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [_stripped(one) for one in slices]})
    found = lint.lint(manifests.read("slices", text), FeatureGates())
    errors = [f"{one.document.label}: {one.field}: {one.text}" for one in found if one.severity is Severity.ERROR]
    if errors:
        raise AssertionError("; ".join(errors[:_SHOWN]))
    if found:
        raise reports.AdviceError("; ".join(f"{one.document.label}: {one.field}: {one.text}" for one in found[:_SHOWN]))


def _stripped(one: Object) -> Object:
    """A slice as its driver wrote it, without what the server added."""
    metadata = json_types.mapping(one, "metadata")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": metadata.get("name")},
        "spec": json_types.mapping(one, "spec"),
    }


def _offer(slices: Sequence[Object], claims: Sequence[Claim]) -> None:
    if not claims:
        raise reports.NotApplicableError("no claim was given; give --claim or --class")
    offered = {
        (json_types.text(one, "spec", "pool", "name"), json_types.text(device, "name"))
        for one in slices
        for device in json_types.objects(one, "spec", "devices")
    }
    missing = [
        f"{result.pool}/{result.device}" for claim in claims for result in claim.results if (result.pool, result.device) not in offered
    ]
    if missing:
        raise AssertionError(f"claims were given {', '.join(missing)}, which no slice of the driver offers")
