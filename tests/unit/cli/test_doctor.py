"""The doctor reports what is missing with a fix, and changes nothing."""

import json
import os
import pathlib
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit import machines
from drakit.cli import not_offered
from drakit.cli.doctor import api, folders
from drakit.core import edits, errors
from drakit.core.advanced import Verdict
from drakit.telemetry import plurals
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_gpu import checks as gpu_checks
from drakit_gpu import device_nodes, host, nvml
from drakit_gpu import driver as gpu_driver
from drakit_gpu import family as gpu_family
from drakit_gpu.mock import mock_gpus
from drakit_nic import checks as nic_checks
from drakit_nic import port
from drakit_nic.passthrough import rdma_devices
from fakes import command_line, nvml_library

MACHINE = "dgx-a100-40gb-2gpu"
NOT_SUPPORTED = 3
POD_UID = "5f0b3c9e-0000-4000-8000-000000000001"
IN_A_POD = ("--set", f"node.pod_uid={POD_UID}")
"""A driver in a pod is served by a kubelet, also with mock hardware."""


Found = list[dict[str, Any]]
Ask = Callable[..., tuple[int, Found]]


@pytest.fixture
def ask(shell: command_line.CommandLine, node: pathlib.Path) -> Ask:
    def run(*arguments: str) -> tuple[int, Found]:
        ran = shell.run("doctor", "--mock", MACHINE, "--folder", str(node), "-o", "json", *arguments)
        return ran.status, json.loads(ran.out)

    return run


def of(found: Found, subject: str) -> dict[str, Any]:
    return next(one for one in found if one["subject"].endswith(subject))


@pytest.fixture
def node() -> Iterator[pathlib.Path]:
    """A node's folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dk") as short:
        for name in ("plugins", "plugins_registry", "cdi"):
            (pathlib.Path(short) / name).mkdir(mode=0o755)
        yield pathlib.Path(short)


def listing(folder: pathlib.Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if "mock" not in file.parts)


def test_a_healthy_node_has_no_finding_and_stays_unchanged(ask: Ask, node: pathlib.Path) -> None:
    before = listing(node)
    status, found = ask("--no-api")
    assert status == 0
    assert {one["verdict"] for one in found} == {"ok"}
    assert of(found, "gpu.drakit.dev")["message"].endswith("devices") or "local file system" in of(found, "gpu.drakit.dev")["message"]
    assert listing(node) == before


def test_every_missing_part_is_named_with_its_fix(ask: Ask, node: pathlib.Path) -> None:
    (node / "plugins_registry").rmdir()
    (node / "plugins").chmod(0o777)
    (node / "plugins" / "gpu.drakit.dev").mkdir()
    (node / "plugins" / "gpu.drakit.dev" / f"dra-{POD_UID}.sock").write_text("no socket")
    status, found = ask("--no-api", *IN_A_POD)
    assert status == 1
    assert of(found, "plugins_registry")["message"] == "node.registry_dir: No such file or directory"
    assert of(found, "/plugins")["fix"] == f"chmod o-w {node / 'plugins'}"
    assert of(found, f"gpu.drakit.dev/dra-{POD_UID}.sock")["message"] == "the file at this path is not a socket"


def test_a_runtime_that_reads_other_cdi_folders_is_a_warning_where_pods_run(ask: Ask, node: pathlib.Path) -> None:
    found = ask("--no-api", *IN_A_POD)[1]
    assert [one["subject"] for one in found if one["verdict"] == "warning"] == [str(node / "cdi")], "runtimes do not look there"


def test_without_a_kubelet_folder_what_depends_on_it_is_skipped_and_not_ok(ask: Ask, node: pathlib.Path) -> None:
    for name in ("plugins", "plugins_registry"):
        (node / name).rmdir()
    status, found = ask("--no-api", *IN_A_POD)
    assert status == 1
    (skipped,) = [one for one in found if one["topic"] == "sockets"]
    assert (skipped["verdict"], skipped["message"]) == ("unknown", "skipped, with the journal: no kubelet folder here")
    assert not [one for one in found if "local file system" in one["message"]]
    (hook,) = nic_checks.of_folder(node / "plugins" / "nic.drakit.dev" / "hook")
    assert (hook.verdict, hook.message) == (Verdict.UNKNOWN, "skipped: no kubelet folder here")


def test_the_doctor_says_which_machine_and_which_api_server_it_looks_at(shell: command_line.CommandLine, node: pathlib.Path) -> None:
    said = shell.run("doctor", "--mock", MACHINE, "--folder", str(node), "--no-api").out
    assert said.splitlines()[0] == f"checked: mock machine {MACHINE}; API server: not asked"


def test_mock_hardware_needs_no_kubelet_also_after_a_claim_was_prepared(ask: Ask, node: pathlib.Path) -> None:
    (node / "plugins_registry").rmdir()
    status, found = ask("--no-api")
    assert status == 0
    assert of(found, str(node))["message"].startswith("no kubelet has run here; mock hardware needs none")
    assert of(found, "/plugins")["verdict"] == "ok", "prepare makes this folder; its mode is still checked"
    (node / "plugins").chmod(0o777)
    assert ask("--no-api")[0] == 1


def test_mock_hardware_without_a_kubeconfig_is_a_warning_that_names_no_api(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    status, found = ask()
    configuration = of(found, "configuration")
    assert (status, configuration["verdict"]) == (0, "warning")
    assert configuration["fix"] == "add --no-api to leave the API server out, or --kubeconfig FILE to check one"
    status, found = ask("--kubeconfig", "/no/such/file")
    assert (status, of(found, "configuration")["verdict"]) == (1, "failed")


def test_a_registration_folder_whose_real_path_is_too_long_is_a_warning(shell: command_line.CommandLine) -> None:
    with tempfile.TemporaryDirectory(prefix="dk") as short:
        real, link = pathlib.Path(short, "k" * 90), pathlib.Path(short, "l")
        (real / "plugins_registry").mkdir(parents=True)
        (real / "plugins").mkdir()
        link.symlink_to(real)
        ran = shell.run("doctor", "--mock", MACHINE, "--folder", str(link), "-o", "json", "--no-api", "--family", "gpu")
        found = [entry for entry in json.loads(ran.out) if entry["topic"] == "sockets"]
        (warning,) = [entry for entry in found if entry["verdict"] == "warning"]
        assert warning["subject"] == str(link / "plugins_registry")
        assert f"{real}/plugins_registry/dra-" in warning["message"]
        assert "of which the kernel takes 107" in warning["message"]


def test_mock_hardware_in_a_long_folder_has_a_warning_of_its_sockets_and_no_failure(shell: command_line.CommandLine) -> None:
    with tempfile.TemporaryDirectory(prefix="dk") as short:
        long = pathlib.Path(short, "k" * 90)
        where = ("doctor", "--mock", MACHINE, "--folder", str(long), "-o", "json", "--no-api", "--family", "gpu")
        ran = shell.run(*where)
        found = [one for one in json.loads(ran.out) if one["topic"] == "sockets"]
        assert (ran.status, {one["verdict"] for one in found}) == (0, {"warning"})
        path = long / "plugins" / "gpu.drakit.dev" / "dra.sock"
        assert (
            of(found, "dra.sock")["message"]
            == f"socket path: {path} has {len(str(path))} bytes and the kernel takes 107; use a shorter folder"
        )
        (long / "plugins_registry").mkdir(parents=True)
        assert shell.run(*where).status == 1, "with a kubelet, a driver is served there"


def test_a_served_and_a_stale_socket_are_distinguished(ask: Ask, node: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gpu.drakit.dev", "nic.drakit.dev"):
        (node / "plugins" / name).mkdir()
    monkeypatch.chdir(node / "plugins")
    with socket.socket(socket.AF_UNIX) as served, socket.socket(socket.AF_UNIX) as stale:
        served.bind("gpu.drakit.dev/dra.sock")
        served.listen()
        stale.bind("nic.drakit.dev/dra.sock")
        stale.close()
        _, found = ask("--no-api")
    assert of(found, "gpu.drakit.dev/dra.sock")["message"] == "gpu.drakit.dev is served"
    assert "stale socket" in of(found, "nic.drakit.dev/dra.sock")["message"]


def test_the_file_system_of_the_nearest_existing_folder_is_checked(tmp_path: pathlib.Path) -> None:
    assert folders.filesystem_of(tmp_path / "not" / "yet") == folders.filesystem_of(tmp_path)
    assert folders.filesystem_of(pathlib.Path("/proc/self")) == "proc"


@pytest.fixture
def cluster() -> Iterator[clusters.LocalCluster]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as made:
        yield made


def test_the_driver_has_every_right_it_needs_on_the_local_cluster(ask: Ask, node: pathlib.Path, cluster: clusters.LocalCluster) -> None:
    status, found = ask("--node", "node-1", "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
    assert status == 0
    assert of(found, "resourceslices")["message"] == "may list, watch, create, update, delete"
    assert of(found, "node node-1")["verdict"] == "ok"
    assert of(found, "resourceclaims/driver gpu.drakit.dev")["message"] == "may associated-node:patch"
    assert of(found, "resource.k8s.io/v1")["verdict"] == "ok"


def test_a_missing_right_and_an_unknown_node_are_named(ask: Ask, node: pathlib.Path, cluster: clusters.LocalCluster) -> None:
    for role in cluster.api.list(resources.CLUSTER_ROLE_BINDING).items:
        name = role["metadata"]["name"]  # type: ignore[index, call-overload]
        if "drakit" in str(name):
            cluster.api.delete(resources.CLUSTER_ROLE_BINDING, str(name))
    status, found = ask("--node", "elsewhere", "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
    assert status == 1
    assert of(found, "resourceslices")["verdict"] == "failed"
    verbs = "list, watch, create, update, delete"
    assert (
        of(found, "resourceslices")["fix"]
        == f"grant {verbs} on resourceslices to the driver's service account; docs/reference/rbac.md lists every right"
    )
    assert of(found, "node elsewhere")["verdict"] == "failed"
    assert "403" in of(found, "node elsewhere")["message"]
    assert (
        of(found, "node elsewhere")["fix"] == "grant get on nodes to the driver's service account; docs/reference/rbac.md lists every right"
    )


@pytest.mark.parametrize(
    "labels, verdict",
    [
        ({}, "warning"),
        ({"kubernetes.azure.com/accelerator": "amd", "nvidia.com/gpu.present": "false"}, "warning"),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "ok"),
        ({"drakit.dev/gpu": "true"}, "ok"),
    ],
)
def test_a_node_without_a_label_that_places_the_gpu_driver_is_named(labels: dict[str, str], verdict: str) -> None:
    found = api.of_labels("node-1", labels, "gpu", gpu_family.LABELS)
    assert found.verdict.value == verdict
    assert ("kubectl label node node-1 drakit.dev/gpu=true" in found.fix) == (verdict == "warning")


def test_a_policy_that_denies_slices_is_named_and_nothing_is_stored(ask: Ask, cluster: clusters.LocalCluster) -> None:
    asked = ("--node", "node-1", "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
    before = cluster.api.list(resources.SLICE).items
    status, found = ask(*asked)
    assert (status, of(found, "slice of gpu.drakit.dev")["verdict"]) == (0, "ok")
    rule: json_types.Object = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["resourceslices"],
    }
    spec: json_types.Object = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.driver != 'gpu.drakit.dev'", "message": "no GPUs here", "reason": "Forbidden"}],
    }
    cluster.api.create(resources.ADMISSION_POLICY, {"metadata": {"name": "guard"}, "spec": spec})
    binding: json_types.Object = {"policyName": "guard", "validationActions": ["Deny"]}
    cluster.api.create(resources.ADMISSION_BINDING, {"metadata": {"name": "guard"}, "spec": binding})
    status, found = ask(*asked)
    assert status == 1
    denied = of(found, "slice of gpu.drakit.dev")
    assert denied["verdict"] == "failed"
    assert "ValidatingAdmissionPolicy 'guard'" in denied["message"]
    assert "no GPUs here" in denied["message"]
    assert of(found, "slice of nic.drakit.dev")["verdict"] == "ok"
    assert cluster.api.list(resources.SLICE).items == before


def test_the_rights_for_mps_pods_are_checked_in_their_namespace(ask: Ask, cluster: clusters.LocalCluster) -> None:
    asked = (
        *("--node", "node-1", "--kubeconfig", str(cluster.driver_kubeconfig("node-1"))),
        *("--set", "gpu.mps_template=drakit-system/drakit-mps"),
    )
    _, found = ask(*asked)
    assert of(found, "pods")["message"] == "may not create, get, list, delete, which is needed to run MPS daemons in pods"
    assert (of(found, "pods")["verdict"], of(found, "podtemplates drakit-mps")["verdict"]) == ("warning", "warning")
    bindings = cluster.api.list(resources.CLUSTER_ROLE_BINDING).items
    [account] = [
        subject
        for one in bindings
        if "drakit" in json_types.text(one, "metadata", "name")
        for subject in json_types.objects(one, "subjects")
    ]
    rules: list[json_types.Json] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "delete"]},
        {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get"], "resourceNames": ["drakit-mps"]},
    ]
    name: json_types.Object = {"name": "mps", "namespace": "drakit-system"}
    cluster.api.create(resources.ROLE, {"metadata": name, "rules": rules})
    reference: json_types.Object = {"apiGroup": resources.RBAC_GROUP, "kind": "Role", "name": "mps"}
    cluster.api.create(resources.ROLE_BINDING, {"metadata": name, "roleRef": reference, "subjects": [account]})
    _, found = ask(*asked)
    assert (of(found, "pods")["verdict"], of(found, "podtemplates drakit-mps")["verdict"]) == ("ok", "ok")


@pytest.mark.parametrize("number,words", [(0, "0 claims"), (1, "1 claim"), (2, "2 claims"), (21, "21 claims")])
def test_nouns_agree_with_their_number(number: int, words: str) -> None:
    assert plurals.counted(number, "claim") == words


def test_a_node_missing_in_the_cluster_is_reported_as_a_wrong_name(ask: Ask, cluster: clusters.LocalCluster) -> None:
    _, found = ask("--node", "elsewhere", "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
    assert "404" in of(found, "node elsewhere")["message"]
    assert of(found, "node elsewhere")["fix"] == "set node.name to the name that kubectl get nodes shows"


def test_an_unreachable_api_server_is_one_finding_without_a_traceback(ask: Ask, node: pathlib.Path, tmp_path: pathlib.Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    status, found = ask("--node", "node-1", "--kubeconfig", str(nowhere))
    assert status == 1
    assert next(one["message"] for one in found if one["topic"] == "api server").startswith("no answer from the API server")


def test_rights_are_checked_for_the_drivers_own_name(ask: Ask, cluster: clusters.LocalCluster) -> None:
    for role in cluster.api.list(resources.CLUSTER_ROLE).items:
        for rule in json_types.objects(role, "rules"):
            if rule.get("resources") == ["resourceclaims/driver"]:
                rule["resourceNames"] = ["gpu.drakit.dev"]
                cluster.api.update(resources.CLUSTER_ROLE, role)
    status, found = ask("--node", "node-1", "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
    assert status == 0, "it is a warning: only statuses depend on it"
    assert of(found, "resourceclaims/driver gpu.drakit.dev")["verdict"] == "ok"
    assert of(found, "resourceclaims/driver nic.drakit.dev")["verdict"] == "warning"


def test_a_kernel_that_cannot_shape_is_reported_with_what_to_load() -> None:
    able = nic_checks.of_kernel(lambda: port.Shaping(classifier=port.Classifier.NETNS))
    assert (able.verdict, able.fix) == (Verdict.OK, "")
    older = nic_checks.of_kernel(lambda: port.Shaping(classifier=port.Classifier.NETNS, reads_memory=True))
    assert (older.verdict, older.message) == (Verdict.OK, f"{able.message}, which it reads from the kernel's memory")
    forgeable = nic_checks.of_kernel(lambda: port.Shaping(classifier=port.Classifier.MAC))
    assert (forgeable.verdict, "NET_RAW" in forgeable.fix) == (Verdict.WARNING, True)
    unable = nic_checks.of_kernel(
        lambda: port.Shaping(classifier=port.Classifier.NONE, missing="this kernel cannot enforce shares (no htb)")
    )
    assert (unable.verdict, unable.message) == (Verdict.FAILED, "this kernel cannot enforce shares (no htb)")
    assert "sch_htb" in unable.fix

    def refused() -> port.Shaping:
        raise errors.HardwareError("import pyroute2", "is not installed; run: pip install pyroute2")

    assert nic_checks.of_kernel(refused).verdict is Verdict.FAILED


def test_a_wheel_without_the_hook_program_is_reported_with_the_fix() -> None:
    def missing() -> bytes:
        raise errors.HardwareError("attach client", "the installation does not contain it; use the driver's image or a checkout")

    found = nic_checks.of_program(missing)
    assert found.verdict is Verdict.FAILED
    assert "no interface can be shared without it" in found.message
    assert "driver/attach/build" in found.fix
    assert nic_checks.of_program(lambda: b"program").verdict is Verdict.OK


def test_selinux_that_enforces_is_a_warning_with_where_to_look(tmp_path: pathlib.Path) -> None:
    enforce = tmp_path / "enforce"
    for content, verdict in (("1", Verdict.WARNING), ("0", Verdict.OK)):
        enforce.write_text(content)
        hook, selinux = nic_checks.of_folder(tmp_path / "not" / "yet", enforce)
        assert (hook.verdict, selinux.verdict) == (Verdict.OK, verdict)
    assert [found.verdict for found in nic_checks.of_folder(tmp_path, tmp_path / "nowhere")] == [Verdict.OK, Verdict.OK]


@pytest.mark.parametrize(
    "kind,verdict", [("container_file_t", Verdict.OK), ("container_var_lib_t", Verdict.OK), ("var_lib_t", Verdict.WARNING)]
)
def test_the_types_from_which_runtimes_run_the_hook_are_no_warning(tmp_path: pathlib.Path, kind: str, verdict: Verdict) -> None:
    enforce, label = tmp_path / "enforce", f"system_u:object_r:{kind}:s0"
    enforce.write_text("1")
    _, selinux = nic_checks.of_folder(tmp_path, enforce, label=lambda _: label)
    assert (selinux.verdict, label in selinux.message) == (verdict, True)


def test_a_folder_mounted_noexec_is_reported_before_a_pod_fails(tmp_path: pathlib.Path) -> None:
    hook, *_ = nic_checks.of_folder(tmp_path / "not" / "yet", flags=lambda _: os.ST_NOEXEC | os.ST_RDONLY)
    assert (hook.verdict, hook.fix) == (Verdict.FAILED, "mount it without noexec, or move node.plugins_dir")


@pytest.mark.parametrize(
    "exclusive, said",
    [(True, "is exclusive: a device moves to the pod of its whole interface; the host has mlx5_0"), (False, "beside the limits of shares")],
    ids=["exclusive", "shared"],
)
def test_the_mode_of_rdma_and_its_devices_are_reported(said: str, *, exclusive: bool) -> None:
    (found,) = nic_checks.of_rdma(lambda: rdma_devices.Subsystem(exclusive=exclusive, names=("mlx5_0",)))
    assert found.verdict is Verdict.OK
    assert said in found.message
    assert "mlx5_0" in found.message


def test_a_node_without_rdma_devices_is_told_nothing_of_rdma() -> None:
    assert list(nic_checks.of_rdma(lambda: None)) == []

    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    (found,) = nic_checks.of_rdma(refused)
    assert (found.verdict, found.message) == (Verdict.UNKNOWN, "Operation not permitted")


def test_an_nvml_call_that_fails_is_reported(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name=MACHINE, directory=tmp_path / "machine", owner="node-a"))
    library = nvml_library.NvmlLibrary(hardware)
    system = host.Host(nvml_library.host_root(tmp_path / "root", hardware))
    found = gpu_checks.of_library(lambda: nvml.NvmlGpus(library.load, system=system))
    assert (found.verdict, found.message.split(",")[0]) == (Verdict.OK, "answers for 2 of 2 GPUs")
    library.event_kinds[hardware.gpus()[1].uuid] = None
    unmonitored = gpu_checks.of_library(lambda: nvml.NvmlGpus(library.load, system=system))
    assert unmonitored.verdict is Verdict.WARNING
    assert "NVML reports no Xids of gpu-1, so the driver only polls these GPUs every few seconds" in unmonitored.message
    missing = gpu_checks.of_library(lambda: nvml.NvmlGpus.open(tmp_path / "libnvidia-ml.so.1"))
    assert missing.verdict is Verdict.FAILED
    assert "cannot load" in missing.message

    def uninstalled() -> nvml.NvmlGpus:
        raise ImportError("pynvml")

    assert gpu_checks.of_library(uninstalled).fix == "pip install nvidia-ml-py"


def test_findings_are_printed_with_their_fix_and_a_count(shell: command_line.CommandLine, node: pathlib.Path) -> None:
    (node / "plugins_registry").rmdir()
    ran = shell.run("doctor", "--mock", MACHINE, "--folder", str(node), "--no-api", *IN_A_POD)
    assert (
        f"failed   {node / 'plugins_registry'}: node.registry_dir: No such file or directory\n         fix: start the kubelet, which creates it"
        in ran.out
    )
    assert ran.out.splitlines()[-1].endswith(" ok, 1 warning, 1 failed")


def test_a_counted_gpu_that_does_not_answer_is_a_failure(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name=MACHINE, directory=tmp_path / "machine", owner="node-a"))
    library = nvml_library.NvmlLibrary(hardware)
    system = host.Host(nvml_library.host_root(tmp_path / "root", hardware))
    for lost, counted in ((1, "answers for 1 of 2 GPUs"), (0, "answers for 0 of 2 GPUs")):
        hardware.lose(hardware.plugged()[lost].uuid)
        found = gpu_checks.of_library(lambda: nvml.NvmlGpus(library.load, system=system))
        assert (found.verdict, found.message.split(",")[0]) == (Verdict.FAILED, counted)
        assert f"index {lost}" in found.message
        assert "nvmlDeviceGetHandleByIndex: GPU_IS_LOST" in found.message


@pytest.mark.parametrize("lost,status", [([1], (1, 0, 0)), ([0, 1], (1, 1, 1))])
def test_doctor_show_and_slices_name_the_gpus_that_do_not_answer(
    shell: command_line.CommandLine, node: pathlib.Path, lost: list[int], status: tuple[int, int, int]
) -> None:
    choice = machines.Choice(name=MACHINE, directory=node / "mock", owner="local")
    hardware = mock_gpus.MockGpus(choice)
    for index in lost:
        hardware.lose(hardware.plugged()[index].uuid)
    where = ("--mock", MACHINE, "--folder", str(node), "--set", f"mock.dir={choice.directory}")
    ran = [shell.run("doctor", *where, "--no-api"), shell.run("show", *where), shell.run("slices", *where)]
    assert tuple(one.status for one in ran) == status
    for one in ran:
        named = ", ".join(f"index {index}" for index in lost)
        assert f"{named}: nvmlDeviceGetHandleByIndex: GPU_IS_LOST" in one.out + one.err


def test_a_gpu_in_mig_mode_without_profiles_is_not_offered_and_named(tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(machines.Choice(name=MACHINE, directory=tmp_path / "machine", owner="node-a"))
    library = nvml_library.NvmlLibrary(hardware)
    system = host.Host(nvml_library.host_root(tmp_path / "root", hardware))
    library.returns["nvmlDeviceGetGpuInstanceProfileInfoV"] = NOT_SUPPORTED
    driver = gpu_driver.GpuDriver(nvml.NvmlGpus(library.load, system=system))
    assert not driver.discover().devices
    result = not_offered.faults(not_offered.by(driver))
    assert result.startswith("2 GPUs are not offered: gpu-0, gpu-1: MIG mode is on, but NVML lists no MIG profiles;")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")
def test_device_nodes_of_claims_without_a_link_are_named(tmp_path: pathlib.Path) -> None:
    node = edits.DeviceNode(path="/dev/nvidia0", type="c", major=195, minor=0)
    assert not list(gpu_checks.of_links([], tmp_path))
    (missing,) = gpu_checks.of_links([edits.Edits(device_nodes=(node,))], tmp_path)
    assert (missing.verdict, missing.subject) == (Verdict.WARNING, str(tmp_path / "dev/char"))
    assert missing.message.startswith(
        "no link for 195:0 (/dev/nvidia0): with the systemd cgroup driver, systemctl daemon-reload may take GPUs"
    )
    assert "create-dev-char-symlinks" in missing.fix
    device_nodes.ensure_device_nodes([node], tmp_path)
    (linked,) = gpu_checks.of_links([edits.Edits(device_nodes=(node,))], tmp_path)
    assert (linked.verdict, linked.message) == (Verdict.OK, "has the links of 1 device node")
