"""``lint`` and ``doctor --cluster`` warn of more pools with counters than a scheduler bears; ``doctor`` also of claims whose slices are gone."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from drakit.cli.doctor import fleet
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources, versions
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from fakes import command_line, stub_api

DRIVER = "gpu.example.com"


def counted_node(number: int) -> list[Object]:
    """The two slices of a node: a counter set, and a device that consumes it."""
    name = f"n{number}"
    parts: list[dict[str, object]] = [
        {"sharedCounters": [{"name": "c", "counters": {"m": {"value": "1"}}}]},
        {"devices": [{"name": "d", "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]}]},
    ]
    common = {"driver": DRIVER, "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 2}}
    made = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{place}"},
            "spec": {**common, **part},
        }
        for place, part in enumerate(parts)
    ]
    return [json.loads(json.dumps(one)) for one in made]


def fleet_of(nodes: int) -> list[Object]:
    return [published for number in range(nodes) for published in counted_node(number)]


@contextlib.contextmanager
def server(folder: pathlib.Path, version: str, slices: list[Object]) -> Iterator[str]:
    memory = registry.Registry(gates=FeatureGates.of({}, version))
    for published in slices:
        memory.create(resources.SLICE, published)
    with apiserver.ApiServer(memory) as running:
        running.write_kubeconfig(folder / "kubeconfig")
        yield str(folder / "kubeconfig")


def asked(shell: command_line.CommandLine, kubeconfig: str) -> tuple[int, dict[str, Any]]:
    ran = shell.run("doctor", "--cluster", "--kubeconfig", kubeconfig, "-o", "json")
    return ran.status, {finding["subject"]: finding for finding in json.loads(ran.out)}


def linted(shell: command_line.CommandLine, nodes: int, kubernetes: str) -> list[dict[str, Any]]:
    file = shell.folder / "slices.yaml"
    file.write_text(yaml.dump_all(fleet_of(nodes), Dumper=yaml.CSafeDumper))
    ran = shell.run("lint", str(file), "--kubernetes", kubernetes, "-o", "json")
    assert ran.status == 0, ran.out
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def test_lint_warns_once_for_the_version_whose_scheduler_is_slow(shell: command_line.CommandLine) -> None:
    (finding,) = linted(shell, versions.COUNTED_POOLS_MAX, "1.36,1.37")
    assert (finding["severity"], finding["field"], finding["kubernetes"]) == ("warning", "spec.sharedCounters", ["1.36"])
    assert finding["message"].startswith("50 pools have sharedCounters, and kube-scheduler 1.36 looks at each of them for every node")
    assert finding["fix"] == "use Kubernetes 1.37 and later, or devices without counters: for GPUs, gpu.mig_layouts"


def test_lint_says_nothing_of_fewer_pools(shell: command_line.CommandLine) -> None:
    assert linted(shell, versions.COUNTED_POOLS_MAX - 1, "1.36") == []


@pytest.mark.parametrize(
    "version, nodes, verdict",
    [("1.36", fleet.POOLS_MAX, "warning"), ("1.36", fleet.POOLS_MAX - 1, "ok"), ("1.37", fleet.POOLS_MAX, "ok")],
)
def test_doctor_counts_the_pools_of_a_live_cluster(
    shell: command_line.CommandLine, tmp_path: pathlib.Path, version: str, nodes: int, verdict: str
) -> None:
    with server(tmp_path, version, fleet_of(nodes)) as kubeconfig:
        status, found = asked(shell, kubeconfig)
    assert status == 0, "a warning fails nothing"
    assert found["counters"]["verdict"] == verdict
    assert found["counters"]["message"].startswith(f"{2 * nodes} slices in {nodes} pools; {nodes} pools with sharedCounters ({DRIVER})"), (
        "the list has several pages"
    )
    assert ("gpu-mig-layouts.md" in found["counters"]["fix"]) == (verdict == "warning")


def test_doctor_names_the_right_that_it_lacks_to_check_the_cluster(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    with stub_api.serving(stub_api.StubApi(version="1.36", statuses={"resourceslices": 403}), tmp_path) as kubeconfig:
        ran = shell.run("doctor", "--cluster", "--kubeconfig", str(kubeconfig), "-o", "json")
    finding = json.loads(ran.out)[-1]
    assert (ran.status, finding["verdict"]) == (1, "failed")
    assert finding["fix"] == "use a kubeconfig that may list resourceslices; drivers may read only their own"


def test_doctor_fails_where_claims_have_devices_of_a_driver_without_slices(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    results: list[Json] = [{"request": "r", "driver": DRIVER, "pool": "node-0", "device": device} for device in ("a", "b")]
    held: Object = {"metadata": {"name": "c", "namespace": "n"}, "status": {"allocation": {"devices": {"results": results}}}}
    command = ("doctor", "--cluster", "-o", "json", "--kubeconfig")
    with stub_api.serving(stub_api.StubApi(version="1.37", objects={"resourceclaims": [held]}), tmp_path) as kubeconfig:
        ran = shell.run(*command, str(kubeconfig))
    finding = json.loads(ran.out)[-1]
    assert (ran.status, finding["verdict"], finding["subject"]) == (1, "failed", DRIVER)
    assert finding["message"] == "no slices in pool node-0, and 1 claim has devices of it"
    with stub_api.serving(stub_api.StubApi(version="1.37", statuses={"resourceclaims": 403}), tmp_path) as kubeconfig:
        ran = shell.run(*command, str(kubeconfig))
    assert (ran.status, json.loads(ran.out)[-1]["verdict"]) == (0, "unknown")
    mock = shell.run("doctor", "--cluster", "--mock", command_line.MACHINE)
    assert (mock.status, "--cluster checks all nodes of a cluster; leave out --mock" in mock.err) == (2, True)


def test_both_checks_have_the_same_limits() -> None:
    assert fleet.POOLS_MAX == versions.COUNTED_POOLS_MAX
    first, last = ".".join(map(str, fleet.SCALES_SINCE)), f"{fleet.SCALES_SINCE[0]}.{fleet.SCALES_SINCE[1] - 1}"
    assert versions.within(versions.COUNTERS_SCALE, first)
    assert not versions.within(versions.COUNTERS_SCALE, last)


def test_a_server_of_unknown_version_gets_no_verdict() -> None:
    published = fleet.Published(slices=0, pools=frozenset(), counted=frozenset())
    assert fleet.of_counters(published, "main", None).verdict.value == "unknown"
