"""Commands that read a live cluster follow the version of its server, and name what they cannot use."""

import contextlib
import json
import pathlib
from collections.abc import Iterator

import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from fakes import command_line

CLASS: Object = {"metadata": {"name": "x"}, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "x.example.com"'}}]}}
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: x, count: COUNT}}]}}
"""


def published(**spec: object) -> Object:
    """Return a slice of one driver on a node."""
    fields = {"driver": "x.example.com", "nodeName": "n1", "pool": {"name": "n1", "resourceSliceCount": 1}} | spec
    made: Object = json.loads(json.dumps({"metadata": {"name": f"s{len(spec)}"}, "spec": fields}))
    return made


@contextlib.contextmanager
def cluster(folder: pathlib.Path, version: str, *slices: Object, on: tuple[str, ...] = (), rule: Object | None = None) -> Iterator[str]:
    """Run an API server of a version with a node, a class and slices; yield its kubeconfig."""
    memory = registry.Registry(gates=FeatureGates.of(dict.fromkeys(on, True), version))
    memory.create(resources.NODE, {"metadata": {"name": "n1"}})
    memory.create(resources.CLASS, CLASS)
    for entry in slices:
        memory.create(resources.SLICE, entry)
    if rule is not None:
        memory.create(resources.TAINT_RULE, rule)
    with apiserver.ApiServer(memory) as server:
        server.write_kubeconfig(folder / "kubeconfig")
        yield str(folder / "kubeconfig")


def allocate(shell: command_line.CommandLine, kubeconfig: str, *options: str, count: int = 1) -> command_line.Result:
    """Run allocate for one claim on a live cluster."""
    file = shell.folder / "claim.yaml"
    file.write_text(CLAIM.replace("COUNT", str(count)))
    return shell.run("allocate", "--kubeconfig", kubeconfig, str(file), "-o", "json", *options)


SHARE: Object = {"value": "1", "requestPolicy": {"default": "100m", "validRange": {"min": "100m", "max": "1", "step": "100m"}}}


@pytest.mark.parametrize("version, consumed", [("1.36", "1"), ("1.37", "300m")])
def test_a_live_cluster_is_judged_by_its_servers_version(
    shell: command_line.CommandLine, tmp_path: pathlib.Path, version: str, consumed: str
) -> None:
    shared = published(devices=[{"name": "d", "allowMultipleAllocations": True, "capacity": {"share": SHARE}}])
    with cluster(tmp_path, version, shared) as kubeconfig:
        file = shell.folder / "claim.yaml"
        file.write_text(CLAIM.replace("count: COUNT", "capacity: {requests: {share: 250m}}"))
        ran = shell.run("allocate", "--kubeconfig", kubeconfig, str(file), "-o", "json")
        other = shell.run("allocate", "--kubeconfig", kubeconfig, str(file), "-o", "json", "--kubernetes", "1.37")
    (decision,) = json.loads(ran.out)["decisions"]
    assert decision["claims"][0]["allocation"]["devices"]["results"][0]["consumedCapacity"] == {"share": consumed}
    assert '"share": "300m"' in other.out, "--kubernetes overrides the server's version"


GROUPED = [
    {"name": name, "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": [name]}]}
    for name in ("mig", "vgpu")
]
GROUPS = "DRADeviceCompatibilityGroups"


def test_a_stored_field_shows_that_its_gate_is_on(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    pool = {"name": "n1", "resourceSliceCount": 2}
    counters = published(pool=pool, sharedCounters=[{"name": "c", "counters": {"m": {"value": "2"}}}])
    with cluster(
        tmp_path, "1.37", counters | {"metadata": {"name": "c"}}, published(pool=pool, devices=GROUPED), on=(GROUPS,)
    ) as kubeconfig:
        ran = allocate(shell, kubeconfig, count=2)
        off = allocate(shell, kubeconfig, "--gate", f"{GROUPS}=false", count=2)
        older = allocate(shell, kubeconfig, "--kubernetes", "1.36", count=2)
    assert ran.status == 1, "devices of other groups are not allocated together"
    assert f"feature gate {GROUPS} is taken to be on, because ResourceSlice s2 has spec.devices[0].consumesCounters" in ran.err
    assert (off.status, f"feature gate {GROUPS} is off, although the server stored it" in off.err) == (1, True), "they are not used at all"
    assert older.status == 0
    assert "compatibilityGroups is ignored: Kubernetes 1.36 lacks it; 1.37 and later have it" in older.err


RULE: Object = {
    "metadata": {"name": "broken"},
    "spec": {"deviceSelector": {"driver": "x.example.com"}, "taint": {"key": "example.com/broken", "effect": "NoSchedule"}},
}


@pytest.mark.parametrize("version", ["1.34", "1.36", "1.37"])
def test_taint_rules_are_read_at_every_api_version(shell: command_line.CommandLine, tmp_path: pathlib.Path, version: str) -> None:
    on = ("DRADeviceTaints",) if version == "1.34" else ("DRADeviceTaintRules",)
    with cluster(tmp_path, version, published(devices=[{"name": "d"}]), on=on, rule=RULE) as kubeconfig:
        ran = allocate(shell, kubeconfig)
    assert (ran.status, "tainted and not tolerated: example.com/broken" in ran.out) == (1, True), ran


def test_a_rule_without_a_selector_is_noted_before_1_38(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    rule: Object = {"metadata": {"name": "none"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}
    with cluster(tmp_path, "1.37", published(devices=[{"name": "d"}]), rule=rule) as kubeconfig:
        ran = allocate(shell, kubeconfig)
        repeated = allocate(shell, kubeconfig, "--kubernetes", "1.37")
        planned = allocate(shell, kubeconfig, "--kubernetes", "1.38")
    assert (ran.status, "DeviceTaintRule none has no deviceSelector: schedulers before 1.38 taint every device" in ran.err) == (0, True)
    assert repeated.status == 1
    assert (planned.status, "deviceSelector" in planned.err) == (0, False)


def test_a_kind_that_may_not_be_listed_is_named(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    memory = registry.Registry()
    memory.create(resources.NODE, {"metadata": {"name": "n1"}})
    memory.create(resources.CLASS, CLASS)
    memory.create(resources.SLICE, published(devices=[{"name": "d"}]))
    allowed: Object = {
        "apiGroups": ["resource.k8s.io", ""],
        "verbs": ["list"],
        "resources": ["resourceslices", "deviceclasses", "resourceclaims", "nodes"],
    }
    role: Object = {"metadata": {"name": "reader"}, "rules": [allowed]}
    memory.create(resources.CLUSTER_ROLE, role)
    subject: Object = {"kind": "User", "name": "reader"}
    memory.create(
        resources.CLUSTER_ROLE_BINDING,
        {"metadata": {"name": "reader"}, "roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": [subject]},
    )
    with apiserver.ApiServer(memory) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig", token=server.issue_token("reader"), user="reader")
        ran = allocate(shell, str(tmp_path / "kubeconfig"))
    assert ran.status == 0
    assert "devicetaintrules may not be listed (403) and are not considered" in ran.err
    assert "pods may not be listed (403) and are not considered" in ran.err


def test_lint_of_several_versions_says_which_refuses_what(shell: command_line.CommandLine) -> None:
    file = shell.folder / "rule.yaml"
    file.write_text(json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"} | RULE))
    ran = shell.run("lint", str(file), "--kubernetes", "1.34,1.36,1.37")
    assert ran.status == 1
    refused = "apiVersion: Kubernetes 1.36: resource.k8s.io/v1 is not served by Kubernetes 1.36, but by 1.37 and later"
    assert refused in ran.out
    assert "fix: write resource.k8s.io/v1beta2 or resource.k8s.io/v1alpha3" in ran.out
    assert ran.out.splitlines()[-3:] == [
        "  Kubernetes 1.34: 1 error, 0 warnings",
        "  Kubernetes 1.36: 1 error, 0 warnings",
        "  Kubernetes 1.37: 0 errors, 0 warnings",
    ]
    wrong = shell.run("lint", str(file), "--kubernetes", "1.37,1.99")
    assert (wrong.status, "--kubernetes: unknown Kubernetes version '1.99'; known are 1.34" in wrong.err) == (2, True)


def test_a_gate_that_the_version_does_not_have_is_bad_input(shell: command_line.CommandLine) -> None:
    file = shell.folder / "claim.yaml"
    file.write_text(CLAIM.replace("COUNT", "1"))
    ran = shell.run("lint", str(file), "--kubernetes", "1.36", "--gate", f"{GROUPS}=true")
    assert (ran.status, f"Kubernetes 1.36 has no feature gate {GROUPS}; 1.37 and later have it" in ran.err) == (2, True)


def test_a_field_of_a_newer_version_is_a_warning_that_names_it(shell: command_line.CommandLine) -> None:
    file = shell.folder / "slice.yaml"
    made = published(devices=[{"name": "d"}], skipNodeOperations=["*"])
    file.write_text(json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"} | made))
    ran = shell.run("lint", str(file), "--kubernetes", "1.36")
    assert ran.status == 0
    assert "spec.skipNodeOperations: the API server drops this field, because only Kubernetes 1.37 and later has it" in " ".join(
        ran.out.split()
    )
    removed = published(devices=[{"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}])
    file.write_text(json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"} | removed))
    ran = shell.run("lint", str(file))
    assert (ran.status, "because only Kubernetes 1.36 has it" in " ".join(ran.out.split())) == (0, True)
