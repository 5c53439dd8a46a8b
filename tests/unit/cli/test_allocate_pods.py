"""Pods in ``drakit allocate`` and ``drakit lint``: claims, extended resources, neither, and what has nothing to do with devices."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from fakes import command_line

BY_CLASS = "deviceclass.resource.kubernetes.io/gpu"
BY_NAME = "example.com/gpu"
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {
        "extendedResourceName": BY_NAME,
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.drakit.dev" && device.attributes["gpu.drakit.dev"].type == "gpu"'}}],
    },
}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
}


def pod(name: str, *, claim: bool = False, limits: dict[str, int] | None = None, **spec: Any) -> dict[str, Any]:
    resources: dict[str, object] = {"limits": limits} if limits else {}
    if claim:
        resources["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    container = {"name": "main", "image": "none", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, "containers": [container]}}


@pytest.fixture
def slices(shell: command_line.CommandLine, published_json: Callable[..., str]) -> str:
    file = shell.folder / "slices.yaml"
    file.write_text(published_json(command_line.MACHINE))
    return str(file)


def write(shell: command_line.CommandLine, *objects: dict[str, Any]) -> str:
    file = shell.folder / "pods.yaml"
    template = [TEMPLATE] if any("resourceClaims" in one.get("spec", {}) for one in objects) else []
    file.write_text(yaml.dump_all([CLASS, *template, *objects], Dumper=yaml.CSafeDumper))
    return str(file)


def rows(shell: command_line.CommandLine, slices: str, *objects: dict[str, Any]) -> tuple[int, dict[str, list[str]]]:
    """Return the exit status, and what each pod was given; pods that do not fit are missing."""
    result = shell.run("allocate", slices, write(shell, *objects), "-o", "json")
    decisions = [one for one in json.loads(result.out)["decisions"] if one["fits"]]
    return result.status, {
        one["asked"]: [device["device"] for claim in one["claims"] for device in claim["allocation"]["devices"]["results"]]
        for one in decisions
    }


@pytest.mark.parametrize("name", ["serviceAccountName", "serviceAccount"])
@pytest.mark.parametrize("given", ["in the files", ""])
def test_a_missing_service_account_does_not_affect_allocation(shell: command_line.CommandLine, slices: str, name: str, given: str) -> None:
    account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    user = pod("p", claim=True)
    user["spec"][name] = "trainer"
    objects = [user, *([account] if given else [])]
    assert rows(shell, slices, *objects) == (0, {"pod default/p": ["gpu-0"]})
    linted = shell.run("lint", slices, write(shell, *objects), "--strict")
    assert (linted.status, linted.out.splitlines()[-1].partition(": ")[2]) == (0, "0 errors, 0 warnings")


def test_a_pod_without_devices_fits_and_gets_none(shell: command_line.CommandLine, slices: str) -> None:
    assert rows(shell, slices, pod("bare")) == (0, {"pod default/bare": []})
    shown = shell.run("allocate", slices, write(shell, pod("bare"))).out.splitlines()
    assert shown[1].split() == ["pod", "default/bare", "node-1", "asks", "for", "no", "devices"]


@pytest.mark.parametrize("resource", [BY_CLASS, BY_NAME])
def test_devices_of_extended_resources_are_taken_for_the_next_pod(shell: command_line.CommandLine, slices: str, resource: str) -> None:
    extended = [pod("a", limits={resource: 1}), pod("b", limits={resource: 1})]
    status, given = rows(shell, slices, *extended, pod("late", claim=True))
    assert (status, given) == (1, {"pod default/a": ["gpu-0"], "pod default/b": ["gpu-1"]})


def test_claims_and_extended_resources_of_a_pod_are_placed_together(shell: command_line.CommandLine, slices: str) -> None:
    both = pod("both", claim=True, limits={BY_CLASS: 1})
    assert rows(shell, slices, both) == (0, {"pod default/both": ["gpu-0", "gpu-1"]})
    status, given = rows(shell, slices, pod("first", limits={BY_CLASS: 1}), both)
    assert (status, given) == (1, {"pod default/first": ["gpu-0"]})


def test_obstacles_of_extended_resources_are_shown(shell: command_line.CommandLine, slices: str) -> None:
    result = shell.run("allocate", slices, write(shell, pod("big", limits={BY_CLASS: 3})), "--why")
    assert result.status == 1
    assert "claim default/big-extended-resources-*, request container-0-request-0: needs 3 devices, 2 available" in result.out


def test_with_the_gate_off_no_device_serves_an_extended_resource(shell: command_line.CommandLine, slices: str) -> None:
    result = shell.run("allocate", slices, write(shell, pod("p", limits={BY_CLASS: 1})), "--gate", "DRAExtendedResource=false")
    assert (result.status, f"insufficient {BY_CLASS}" in result.out) == (1, True)


def test_resources_of_device_plugins_are_no_obstacle_where_no_node_is_given(shell: command_line.CommandLine, slices: str) -> None:
    foreign = pod("p", limits={"example.com/rdma": 2, BY_CLASS: 1})
    assert rows(shell, slices, foreign) == (0, {"pod default/p": ["gpu-0"]})
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
    assert rows(shell, slices, foreign, node) == (1, {})


def test_a_bound_pod_takes_its_device_plugin_resources(shell: command_line.CommandLine, slices: str) -> None:
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "status": {"allocatable": {"example.com/rdma": "1"}},
    }
    limits = {"example.com/rdma": 1}
    assert rows(shell, slices, node, pod("p", limits=limits)) == (0, {"pod default/p": []})
    assert rows(shell, slices, node, pod("q", limits=limits, nodeName="node-1"), pod("p", limits=limits)) == (1, {})


def test_lint_warns_of_a_pod_whose_extended_resources_fit_on_no_node(shell: command_line.CommandLine, slices: str) -> None:
    result = shell.run("lint", slices, write(shell, pod("fits", claim=True, limits={BY_CLASS: 1}), pod("big", limits={BY_NAME: 3})))
    assert result.out.count("warning: ") == 1
    assert "Pod default/big" in result.out
    assert "spec.containers: fits on no node, even if nothing is allocated" in result.out
    assert "needs 3 devices, 2 available" in result.out


def test_lint_warns_of_an_extended_resource_with_a_missing_class(shell: command_line.CommandLine, slices: str) -> None:
    result = shell.run("lint", slices, write(shell, pod("p", limits={BY_CLASS + "s": 1})))
    assert f"requests {BY_CLASS}s, but DeviceClass gpus is not in these files\n  fix: write gpu\n" in result.out
