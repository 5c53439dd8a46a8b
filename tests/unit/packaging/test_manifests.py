"""The manifests under daemonset/ render, match the Kubernetes schema, and agree with the program they start."""

import functools
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import kubernetes_validate
import pytest
import yaml

from drakit import settings

ROOT = pathlib.Path(__file__).parents[3]
KUSTOMIZATIONS = ["daemonset/base", *(f"daemonset/overlays/{name}" for name in ("mock", "tpu-mock", "gpu", "nic", "gpu-nic"))]
DRIVER_ROOT = {"/", "/dev"}
API = "1.36"

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the kustomizations and is not installed")


@functools.cache
def rendered(folder: str) -> list[dict[str, object]]:
    run = subprocess.run(["kubectl", "kustomize", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return list(yaml.safe_load_all(run.stdout))


def find(folder: str, kind: str) -> dict[str, object]:
    return next(item for item in rendered(folder) if item["kind"] == kind)


def walk(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from walk(item)


@needs_kubectl
@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_every_manifest_matches_the_schema_of_kubernetes(folder: str) -> None:
    kinds = []
    for item in rendered(folder):
        kubernetes_validate.validate(item, API, strict=True)
        kinds.append(item["kind"])
    assert {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DeviceClass", "DaemonSet"} <= set(kinds)


@needs_kubectl
def test_a_wrong_field_would_be_noticed() -> None:
    broken = dict(find("daemonset/base", "DaemonSet"), spek={})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, API, strict=True)


@needs_kubectl
@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_every_environment_variable_is_a_setting(folder: str) -> None:
    variables = [
        str(entry["name"])
        for mapping in walk(find(folder, "DaemonSet"))
        if isinstance(mapping.get("env"), list)
        for entry in mapping["env"]  # type: ignore[attr-defined]
    ]
    assert variables
    known = {settings.ENV_PREFIX + key.replace(".", settings.ENV_NESTING).upper() for key, _, _ in settings.known_keys()}
    assert set(variables) - {"POD_IP"} <= known


@needs_kubectl
@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_host_folders_are_where_the_driver_looks_by_default(folder: str) -> None:
    paths = {str(mapping["mountPath"]) for mapping in walk(find(folder, "DaemonSet")) if "mountPath" in mapping}
    node = settings.Node()
    assert {str(node.plugins_dir), str(node.registry_dir), str(node.cdi_dir)} <= paths
    host = {str(mapping["hostPath"]["path"]) for mapping in walk(find(folder, "DaemonSet")) if "hostPath" in mapping}  # type: ignore[index]
    assert host - DRIVER_ROOT <= paths, "the kubelet uses paths word for word, so they are the same inside and outside"


def driver_of(folder: str) -> dict[str, object]:
    spec = find(folder, "DaemonSet")["spec"]["template"]["spec"]  # type: ignore[index]
    found: dict[str, object] = spec["containers"][0]
    return found


@needs_kubectl
def test_each_overlay_adds_only_the_privilege_its_hardware_needs() -> None:
    security = {name: driver_of(f"daemonset/overlays/{name}")["securityContext"] for name in ("mock", "gpu", "nic", "gpu-nic")}
    assert "privileged" not in security["mock"]  # type: ignore[operator]
    assert "privileged" not in security["nic"]  # type: ignore[operator]
    assert security["nic"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "SYS_ADMIN", "BPF", "PERFMON"]}  # type: ignore[index]
    assert security["gpu"]["privileged"] is security["gpu-nic"]["privileged"] is True  # type: ignore[index]
    assert driver_of("daemonset/overlays/gpu")["args"] == ["run", "--family", "gpu"]
    assert driver_of("daemonset/overlays/gpu-nic")["args"] == ["run"]


@needs_kubectl
def test_mounts_reach_the_host_only_where_the_driver_makes_some_and_is_privileged() -> None:
    for name in ("mock", "gpu", "nic", "gpu-nic"):
        container = driver_of(f"daemonset/overlays/{name}")
        found = [mount["mountPath"] for mount in container["volumeMounts"] if mount.get("mountPropagation") == "Bidirectional"]  # type: ignore[attr-defined]
        wanted = [str(settings.Node().plugins_dir)] if name.startswith("gpu") else []
        assert found == wanted, f"{name}: MPS daemons' shared memory, and nothing else"
        assert not found or container["securityContext"]["privileged"] is True  # type: ignore[index]


@needs_kubectl
def test_the_kubelet_asks_the_driver_whether_it_lives_and_is_ready() -> None:
    driver = driver_of("daemonset/base")
    address = next(entry["value"] for entry in driver["env"] if entry["name"] == "DRAKIT_SERVE__ADDRESS")  # type: ignore[attr-defined]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = driver[probe]["httpGet"]  # type: ignore[index]
        assert (asked["path"], f"{asked['host']}:{asked['port']}") == (path, address)


@needs_kubectl
@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_the_pod_is_ready_within_a_second_of_serving(folder: str) -> None:
    probe = driver_of(folder)["readinessProbe"]
    assert probe["periodSeconds"] == 1  # type: ignore[index]
    assert "initialDelaySeconds" not in probe  # type: ignore[operator]
    assert probe["failureThreshold"] >= 15, "a driver that is slow to answer for some seconds stays Ready"  # type: ignore[index]


@needs_kubectl
@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_a_start_of_two_seconds_of_processor_time_ends_before_the_kubelet_gives_the_slices_up(folder: str) -> None:
    requested = str(driver_of(folder)["resources"]["requests"]["cpu"])  # type: ignore[index]
    assert int(requested.removesuffix("m")) / 1000 * 30 > 2, "a node's slices are deleted 30 s after its driver has gone"


@needs_kubectl
def test_the_driver_may_do_only_what_it_does() -> None:
    rules = find("daemonset/base", "ClusterRole")["rules"]
    assert isinstance(rules, list)
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert granted == {
        ("resourceclaims", "get"),
        ("resourceclaims", "list"),
        ("resourceclaims/status", "patch"),
        ("resourceclaims/driver", "associated-node:patch"),
        ("nodes", "get"),
        ("events", "create"),
        ("events", "patch"),
        *(("resourceslices", verb) for verb in ("get", "list", "watch", "create", "update", "delete")),
    }


@needs_kubectl
def test_the_publisher_may_keep_slices_and_one_lease_and_nothing_else() -> None:
    found = {item["kind"]: item for item in rendered("daemonset/publisher") if item["metadata"]["name"] == "drakit-publisher"}  # type: ignore[index]
    rules = [rule for kind in ("ClusterRole", "Role") for rule in found[kind]["rules"]]  # type: ignore[attr-defined]
    granted = {
        (resource, verb, *rule.get("resourceNames", ())) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]
    }
    assert granted == {
        *(("resourceslices", verb) for verb in ("get", "list", "watch", "create", "update", "delete")),
        ("leases", "create"),
        *(("leases", verb, settings.Tpu().driver_name) for verb in ("get", "update")),
    }
    assert found["Role"]["metadata"]["namespace"] == settings.Election().namespace  # type: ignore[index]


@needs_kubectl
def test_the_publishers_variables_are_settings_and_each_candidate_has_a_name_of_its_own() -> None:
    variables = {
        str(entry["name"]): entry
        for mapping in walk(find("daemonset/overlays/tpu-mock", "Deployment"))
        if isinstance(mapping.get("env"), list)
        for entry in mapping["env"]  # type: ignore[attr-defined]
    }
    known = {settings.ENV_PREFIX + key.replace(".", settings.ENV_NESTING).upper() for key, _, _ in settings.known_keys()}
    assert set(variables) <= known
    assert variables["DRAKIT_ELECTION__IDENTITY"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@needs_kubectl
def test_classes_select_devices_by_driver_first() -> None:
    for item in rendered("daemonset/base"):
        if item["kind"] == "DeviceClass":
            expressions = [str(mapping["expression"]) for mapping in walk(item) if "expression" in mapping]
            assert expressions
            assert all(expression.startswith("device.driver == ") for expression in expressions)


def test_what_the_dockerfile_copies_exists_and_is_not_ignored() -> None:
    text = (ROOT / "Dockerfile").read_text()
    sources = [part for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for part in line.split()[:-1]]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source.removeprefix("./") in allowed, source


def test_what_the_dockerfile_runs_exists() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    text = (ROOT / "Dockerfile").read_text()
    entry = re.search(r'^ENTRYPOINT \["(\w+)"\]$', text, re.MULTILINE)
    assert entry is not None
    assert f"\n{entry[1]} = " in project, "the entry point is a console script of the project"
    for extra in re.findall(r"drakit\[([\w,]+)\]", text):
        for name in extra.split(","):
            assert re.search(rf"^{name} = \[", project, re.MULTILINE), name
        assert "cluster" not in extra, "the image holds no local cluster"
