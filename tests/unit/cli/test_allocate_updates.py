"""``drakit allocate`` warns of a Deployment whose update would wait, because its pods hold every device that fits."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import yaml

from fakes import command_line

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drakit.dev"}}]}}},
}


def deployment(replicas: int | None, strategy: Mapping[str, object] | None = None, *, kind: str = "Deployment") -> dict[str, Any]:
    labels = {"app": "web"}
    spec = {
        "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    body: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    body |= ({"replicas": replicas} if replicas is not None else {}) | ({"strategy": strategy} if strategy else {})
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": body}


def rolling(**values: object) -> dict[str, object]:
    return {"type": "RollingUpdate", "rollingUpdate": values}


@pytest.fixture
def slices(shell: command_line.CommandLine, published: Callable[..., str]) -> str:
    """The slices of a node with two GPUs."""
    file = shell.folder / "slices.yaml"
    file.write_text(published("dgx-a100-40gb-2gpu"))
    return str(file)


def waiting(shell: command_line.CommandLine, slices: str, *objects: object, options: Sequence[str] = ()) -> list[str]:
    file = shell.folder / "asked.yaml"
    file.write_text(yaml.dump_all([TEMPLATE, *objects], Dumper=yaml.CSafeDumper))
    found: list[str] = json.loads(shell.run("allocate", slices, str(file), "-o", "json", *options).out).get("waitingUpdates", [])
    return found


WAITS = {
    "by default": deployment(2),
    "with a surge": deployment(2, rolling(maxSurge=1, maxUnavailable=0)),
    "with percentages of which none is a pod": deployment(2, rolling(maxSurge="50%", maxUnavailable="49%")),
}
ROLLS = {
    "a device is free": deployment(1),
    "an old pod ends first": deployment(2, rolling(maxSurge=0, maxUnavailable=1)),
    "an old pod may end first": deployment(2, rolling(maxSurge=1, maxUnavailable=1)),
    "all old pods end first": deployment(2, {"type": "Recreate"}),
    "the pods do not fit anyway": deployment(3),
    "no pods": deployment(0),
    "a StatefulSet": deployment(2, kind="StatefulSet"),
}


@pytest.mark.parametrize("obj", WAITS.values(), ids=WAITS)
def test_an_update_that_needs_a_device_more_than_there_are_is_a_warning(shell: command_line.CommandLine, slices: str, obj: object) -> None:
    assert waiting(shell, slices, obj) == ["Deployment web"]
    ran = shell.run("allocate", slices, str(shell.folder / "asked.yaml"))
    assert ran.status == 0
    assert "warning: an update of Deployment web would wait" in ran.out
    assert "write maxSurge: 0 and maxUnavailable: 1" in " ".join(ran.out.split())


@pytest.mark.parametrize("obj", ROLLS.values(), ids=ROLLS)
def test_an_update_that_gets_its_devices_has_no_warning(shell: command_line.CommandLine, slices: str, obj: object) -> None:
    assert waiting(shell, slices, obj) == []


def test_what_other_claims_hold_counts(shell: command_line.CommandLine, slices: str) -> None:
    claim = {**TEMPLATE, "kind": "ResourceClaim", "metadata": {"name": "other"}, "spec": TEMPLATE["spec"]["spec"]}  # type: ignore[index] # JSON
    assert waiting(shell, slices, deployment(1), claim) == ["Deployment web"]


def test_one_given_node_says_nothing_of_the_room_on_others(shell: command_line.CommandLine, slices: str) -> None:
    published = yaml.load_all(pathlib.Path(slices).read_text(), Loader=yaml.CSafeLoader)
    (node,) = {document["spec"]["nodeName"] for document in published if "nodeName" in document.get("spec", {})}
    assert waiting(shell, slices, deployment(2), options=("--node", node)) == []
