"""Checks of a driver's ResourceSlices: they are valid, and form complete pools. ``drakit lint`` has most of the rules."""

import collections
import json
from collections.abc import Callable, Mapping, Sequence

from drakit.testing import report as reports
from drakit_cluster import lint, manifests
from drakit_cluster.lint import Severity
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_tools.conformance.claims import Claim

_SHOWN = 3


def checks(
    slices: Sequence[Object] | None, claims: Sequence[Claim], server: Callable[[], FeatureGates] = FeatureGates
) -> Mapping[str, Callable[[], None]]:
    """Return the checks of a driver's slices; without any API server (None) they do not apply. ``server`` gives the rules of its version."""

    def need() -> Sequence[Object]:
        if slices is None:
            raise reports.NotApplicableError("slices are not known without --kubeconfig")
        if not slices:
            raise reports.AdviceError("the driver has published no ResourceSlice for this node: no claim can be allocated to it")
        return slices

    return {
        "slices: every pool is complete, in one generation": lambda: _whole(need()),
        "slices: the API's limits hold, and counters suffice": lambda: _lint(need(), server()),
        "slices: the devices of the claims are published": lambda: _offer(need(), claims),
    }


def _whole(slices: Sequence[Object]) -> None:
    pools: dict[str, list[Object]] = collections.defaultdict(list)
    for published in slices:
        pools[json_types.text(published, "spec", "pool", "name")].append(published)
    wrong = []
    for pool, members in pools.items():
        generations = sorted({json_types.number(published, "spec", "pool", "generation") for published in members})
        newest = [published for published in members if json_types.number(published, "spec", "pool", "generation") == generations[-1]]
        counts = {json_types.number(published, "spec", "pool", "resourceSliceCount") for published in newest}
        if counts != {len(newest)}:
            wrong.append(
                f"generation {generations[-1]} of pool {pool}: resourceSliceCount is {sorted(counts)}, number of slices: {len(newest)}"
            )
        elif len(generations) > 1:
            raise reports.AdviceError(f"pool {pool} still has slices of generations {generations[:-1]}; delete them")
    if wrong:
        raise AssertionError("; ".join(wrong))


def _lint(slices: Sequence[Object], server: FeatureGates) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [_stripped(published) for published in slices]})
    findings = lint.lint(manifests.read("slices", text), server)
    errors = [f"{finding.document.label}: {finding.field}: {finding.text}" for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise AssertionError("; ".join(errors[:_SHOWN]))
    if findings:
        raise reports.AdviceError("; ".join(f"{finding.document.label}: {finding.field}: {finding.text}" for finding in findings[:_SHOWN]))


def _stripped(published: Object) -> Object:
    """Return a slice as its driver wrote it, without the fields that the server added."""
    metadata = json_types.mapping(published, "metadata")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": metadata.get("name")},
        "spec": json_types.mapping(published, "spec"),
    }


def _offer(slices: Sequence[Object], claims: Sequence[Claim]) -> None:
    if not claims:
        raise reports.NotApplicableError("no claim was given; give --claim or --class")
    offered = {
        (json_types.text(published, "spec", "pool", "name"), json_types.text(device, "name"))
        for published in slices
        for device in json_types.objects(published, "spec", "devices")
    }
    missing = [
        f"{result.pool}/{result.device}" for claim in claims for result in claim.results if (result.pool, result.device) not in offered
    ]
    if missing:
        raise AssertionError(f"claims have {', '.join(missing)}, which no slice of the driver has")
