"""The manifests under daemonset/ render, match the Kubernetes schema, and agree with the program they start."""

import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import pytest

from drakit import settings
from drakit_gpu import family as gpu_family
from fakes import kube_schema
from fakes.manifests import EXAMPLES, NAMESPACE, OVERLAYS, ROOT, TPU, example, needs_kubectl, overlay, rendered

FOLDERS = {**{f"daemonset/overlays/{name}": daemonsets for name, daemonsets in OVERLAYS.items()}, TPU: {"drakit-tpu"}}
DRIVERS = [(folder, name) for folder, names in FOLDERS.items() for name in sorted(names)]
OF_EXAMPLES = [(f"examples/{name}/deploy", f"{name}-driver") for name in EXAMPLES]
DRIVER_ROOT = {"/", "/dev"}


def find(folder: str, kind: str, name: str) -> Any:
    (item,) = [item for item in rendered(folder) if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return item


def driver_of(folder: str, daemonset: str) -> Any:
    (container,) = find(folder, "DaemonSet", daemonset)["spec"]["template"]["spec"]["containers"]
    return container


def rights(roles: Iterable[Any]) -> set[tuple[str, ...]]:
    """Resource and verb, and the names where a rule is about named objects only."""
    rules = [rule for role in roles for rule in role["rules"]]
    return {(resource, verb, *rule.get("resourceNames", ())) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def roles_of(folder: str, account: str) -> list[Any]:
    """The roles that are bound to a service account."""
    bound = [
        (item["roleRef"]["kind"], item["roleRef"]["name"])
        for item in rendered(folder)
        if item["kind"] in ("RoleBinding", "ClusterRoleBinding")
        and {"kind": "ServiceAccount", "name": account, "namespace": "drakit-system"} in item["subjects"]
    ]
    return [item for item in rendered(folder) if (item["kind"], item["metadata"]["name"]) in bound]


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from walk(item)


@needs_kubectl
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_manifest_matches_the_schema_of_kubernetes(folder: str) -> None:
    for item in rendered(folder):
        kube_schema.validate(item)
    assert {item["metadata"]["name"] for item in rendered(folder) if item["kind"] == "DaemonSet"} == FOLDERS[folder]
    kinds = {item["kind"] for item in rendered(folder)}
    assert {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DeviceClass"} <= kinds


@needs_kubectl
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_manifests_of_an_example_match_the_schema_and_are_all_a_driver_needs(name: str) -> None:
    for item in example(name):
        kube_schema.validate(item)
    assert {(item["kind"], item["metadata"]["name"]) for item in example(name) if not item["metadata"]["name"].endswith("-restore")} == {
        ("DeviceClass", EXAMPLES[name]),
        *(
            (kind, f"{name}-driver")
            for kind in (
                "Namespace",
                "ServiceAccount",
                "ClusterRole",
                "ClusterRoleBinding",
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
                "DaemonSet",
            )
        ),
    }
    (namespace,) = [item for item in example(name) if item["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", OF_EXAMPLES)
def test_the_pod_of_an_example_is_as_safe_as_drakits_own(folder: str, daemonset: str) -> None:
    own = find("daemonset/base", "DaemonSet", "drakit")["spec"]["template"]["spec"]
    pod = find(folder, "DaemonSet", daemonset)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == daemonset
    same = ("enableServiceLinks", "priorityClassName", "nodeSelector", "tolerations", "terminationGracePeriodSeconds")
    assert [pod[key] for key in same] == [own[key] for key in same]
    (driver,), (container,) = own["containers"], pod["containers"]
    same = ("startupProbe", "readinessProbe", "livenessProbe", "securityContext", "resources")
    assert [container[key] for key in same] == [driver[key] for key in same]


@needs_kubectl
def test_a_wrong_field_would_be_noticed() -> None:
    broken = dict(find("daemonset/base", "DaemonSet", "drakit"), spek={})
    with pytest.raises(jsonschema.ValidationError):
        kube_schema.validate(broken)


@needs_kubectl
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_environment_variable_is_a_setting(folder: str) -> None:
    assert variables(rendered(folder)) - {"POD_IP", "POD_NAMESPACE"} <= known_variables()


@needs_kubectl
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_environment_variable_of_an_example_is_a_setting_or_its_own(name: str) -> None:
    prefixes = (f"{name.upper()}_", f"{EXAMPLES[name].partition('.')[0].upper()}_")
    own = {one for one in variables(example(name)) - {"POD_IP"} if one.startswith(prefixes)}
    assert variables(example(name)) - {"POD_IP"} - own <= known_variables()


def variables(items: list[Any]) -> set[str]:
    found = {str(entry["name"]) for mapping in walk(items) if isinstance(mapping.get("env"), list) for entry in mapping["env"]}
    assert found
    return found


def known_variables() -> set[str]:
    return {settings.ENV_PREFIX + key.replace(".", settings.ENV_NESTING).upper() for key, _ in settings.known_keys()}


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", [*DRIVERS, *OF_EXAMPLES])
def test_host_folders_are_where_the_driver_looks_by_default(folder: str, daemonset: str) -> None:
    pod = find(folder, "DaemonSet", daemonset)
    paths = {str(mapping["mountPath"]) for mapping in walk(pod) if "mountPath" in mapping}
    node = settings.Node()
    assert {str(node.plugins_dir), str(node.registry_dir), str(node.cdi_dir)} <= paths
    host = {str(mapping["hostPath"]["path"]) for mapping in walk(pod) if "hostPath" in mapping}
    assert host - DRIVER_ROOT <= paths, "the kubelet uses paths word for word, so they are the same inside and outside"


@needs_kubectl
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_pod_has_the_label_of_drakit_and_one_of_its_family(folder: str) -> None:
    workloads = [item for item in rendered(folder) if item["kind"] in ("DaemonSet", "Deployment")]
    for item in workloads:
        wanted = {"app.kubernetes.io/name": "drakit", "app.kubernetes.io/component": item["metadata"]["name"].removeprefix("drakit-")}
        assert item["spec"]["selector"]["matchLabels"] == item["spec"]["template"]["metadata"]["labels"] == wanted


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", DRIVERS)
def test_each_family_is_served_by_a_process_of_its_own(folder: str, daemonset: str) -> None:
    driver, family = driver_of(folder, daemonset), daemonset.removeprefix("drakit-")
    assert driver["args"] == ["run", "--family", family]
    variables = {entry["name"]: entry.get("value", "") for entry in driver["env"]}
    environ = {key: value for key, value in variables.items() if key.endswith("__ENABLED")}
    enabled = settings.load({}, environ=environ)
    installed = ("tpu",) if folder == TPU else ("gpu", "nic")
    assert [one for one in installed if enabled.group(one).enabled] == [family], "commands in the pod see one family too"
    assert {f"DRAKIT_{one.upper()}__ENABLED" for one in installed} >= environ.keys(), "no setting of a family that the image lacks"


@needs_kubectl
@pytest.mark.parametrize("folder", ["daemonset/overlays/mock", TPU])
def test_pretend_hardware_needs_no_privilege(folder: str) -> None:
    for daemonset in FOLDERS[folder]:
        security = driver_of(folder, daemonset)["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in security
        pod = find(folder, "DaemonSet", daemonset)["spec"]["template"]["spec"]
        assert "hostNetwork" not in pod
        assert "affinity" not in pod


@needs_kubectl
@pytest.mark.parametrize("name", ["gpu", "nic", "gpu-nic"])
def test_each_family_has_only_the_privilege_its_hardware_needs(name: str) -> None:
    for daemonset in OVERLAYS[name]:
        pod = find(f"daemonset/overlays/{name}", "DaemonSet", daemonset)["spec"]["template"]["spec"]
        security = driver_of(f"daemonset/overlays/{name}", daemonset)["securityContext"]
        is_gpu = daemonset == "drakit-gpu"
        assert (security.get("privileged"), pod.get("hostNetwork")) == ((True, None) if is_gpu else (None, True))
        assert security["readOnlyRootFilesystem"] is True
        assert security["seLinuxOptions"] == {"type": "spc_t"}
        if not is_gpu:
            assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "BPF", "PERFMON"]}
            assert security["appArmorProfile"] == {"type": "Unconfined"}
            assert security["allowPrivilegeEscalation"] is False


@needs_kubectl
def test_gpu_drivers_run_on_nodes_with_an_nvidia_gpu_and_on_labelled_nodes() -> None:
    pod = find("daemonset/overlays/gpu-nic", "DaemonSet", "drakit-gpu")["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    labels = {one["key"]: one.get("values") for term in terms for one in term["matchExpressions"]}
    assert all(len(term["matchExpressions"]) == 1 for term in terms), "one label is enough"
    assert {one["operator"] for term in terms for one in term["matchExpressions"]} == {"In", "Exists"}
    assert labels == {key: None if value is None else [value] for key, value in gpu_family.LABELS.items()}, (
        "the labels that doctor looks for"
    )
    assert {"nvidia.com/gpu.present", "cloud.google.com/gke-accelerator", "drakit.dev/gpu"} <= labels.keys()


def test_the_page_lists_every_label_that_places_the_gpu_driver() -> None:
    page = (ROOT / "docs" / "howto" / "run-on-a-cluster.md").read_text("utf-8")
    keys = {key.removeprefix("feature.node.kubernetes.io/") for key in gpu_family.LABELS}
    assert [key for key in keys if key not in page] == []


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", [*DRIVERS, *OF_EXAMPLES])
def test_mounts_reach_the_host_only_where_the_driver_makes_some_and_is_privileged(folder: str, daemonset: str) -> None:
    container = driver_of(folder, daemonset)
    shared = [mount["mountPath"] for mount in container["volumeMounts"] if mount.get("mountPropagation") == "Bidirectional"]
    wanted = [str(settings.Node().plugins_dir)] if container["securityContext"].get("privileged") else []
    assert shared == wanted, "MPS daemons' shared memory, and nothing else"


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", [*DRIVERS, *OF_EXAMPLES])
def test_the_kubelet_asks_the_pods_own_driver_whether_it_lives_and_is_ready(folder: str, daemonset: str) -> None:
    driver = driver_of(folder, daemonset)
    (path,) = [entry["value"] for entry in driver["env"] if entry["name"] == "DRAKIT_SERVE__SOCKET"]
    for probe, page in (("startupProbe", "/readyz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert driver[probe]["exec"]["command"] == ["drakit-probe", path, page]
        assert driver[probe]["timeoutSeconds"] > 5, "the probe itself waits for 5 s and says so"
    (mount,) = [mount["name"] for mount in driver["volumeMounts"] if path.startswith(f"{mount['mountPath']}/")]
    volumes = find(folder, "DaemonSet", daemonset)["spec"]["template"]["spec"]["volumes"]
    (volume,) = [volume for volume in volumes if volume["name"] == mount]
    assert set(volume) == {"name", "emptyDir"}, "no other pod has it"


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", [*DRIVERS, *OF_EXAMPLES])
def test_the_pod_is_ready_within_a_second_of_serving_and_is_asked_rarely_then(folder: str, daemonset: str) -> None:
    driver = driver_of(folder, daemonset)
    assert driver["startupProbe"]["periodSeconds"] == 1
    assert all("initialDelaySeconds" not in driver[probe] for probe in ("startupProbe", "readinessProbe", "livenessProbe"))
    asked = sum(1 / driver[probe]["periodSeconds"] for probe in ("readinessProbe", "livenessProbe"))
    assert asked * 0.040 < 0.003, "running a program in a container costs some 40 ms, and probes less than 0.3 % of a core"


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", [*DRIVERS, *OF_EXAMPLES])
def test_an_update_leaves_no_moment_without_a_driver(folder: str, daemonset: str) -> None:
    found = find(folder, "DaemonSet", daemonset)
    assert found["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (uid,) = [entry for entry in driver_of(folder, daemonset)["env"] if entry["name"] == "DRAKIT_NODE__POD_UID"]
    assert uid["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}, "sockets of the pod's own"
    containers = found["spec"]["template"]["spec"]["containers"]
    assert not any("ports" in container for container in containers), "with a port in the host's network two pods would not fit on a node"


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", [*DRIVERS, *OF_EXAMPLES])
def test_a_start_of_two_cpu_seconds_ends_before_the_kubelet_wipes_the_slices(folder: str, daemonset: str) -> None:
    requested = str(driver_of(folder, daemonset)["resources"]["requests"]["cpu"])
    assert int(requested.removesuffix("m")) / 1000 * 30 > 2, "a node's slices are deleted 30 s after its driver has gone"


NODE_RIGHTS = {
    ("resourceclaims", "get"),
    ("resourceclaims", "list"),
    ("resourceclaims/status", "patch"),
    ("nodes", "get"),
    *(("resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
}
MPS_RIGHTS = {*(("pods", verb) for verb in ("create", "get", "list", "delete")), ("podtemplates", "get", "drakit-mps")}


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", DRIVERS)
def test_a_driver_has_rights_of_its_own_family_only(folder: str, daemonset: str) -> None:
    pod = find(folder, "DaemonSet", daemonset)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == daemonset
    driver = f"{daemonset.removeprefix('drakit-')}.drakit.dev"
    on_one_node = {("resourceclaims/driver", "associated-node:patch", driver), ("events", "create"), ("events", "patch")}
    on_several_nodes = {("resourceclaims/driver", "arbitrary-node:patch", driver)}
    own = MPS_RIGHTS if daemonset == "drakit-gpu" else set()
    assert rights(roles_of(folder, daemonset)) == NODE_RIGHTS | (on_several_nodes if daemonset == "drakit-tpu" else on_one_node) | own


@needs_kubectl
@pytest.mark.parametrize("folder, daemonset", DRIVERS)
def test_the_right_to_list_claims_can_be_taken_away_by_itself(folder: str, daemonset: str) -> None:
    (role,) = [one for one in roles_of(folder, daemonset) if ("resourceclaims", "list") in rights([one])]
    assert rights([role]) == {("resourceclaims", "list")}


@needs_kubectl
def test_the_publisher_may_keep_slices_and_one_lease_and_nothing_else() -> None:
    roles = roles_of(TPU, "drakit-publisher")
    assert rights(roles) == {
        *(("resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
        ("leases", "create"),
        *(("leases", verb, "tpu.drakit.dev") for verb in ("get", "update")),
    }
    (role,) = [one for one in roles if one["kind"] == "Role"]
    assert role["metadata"]["namespace"] == settings.Election().namespace


@needs_kubectl
def test_each_candidate_for_the_lease_has_a_name_of_its_own() -> None:
    (container,) = find(TPU, "Deployment", "drakit-publisher")["spec"]["template"]["spec"]["containers"]
    (identity,) = [entry for entry in container["env"] if entry["name"] == "DRAKIT_ELECTION__IDENTITY"]
    assert identity["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@needs_kubectl
def test_classes_select_devices_by_driver_first() -> None:
    classes = [item for folder in FOLDERS for item in rendered(folder) if item["kind"] == "DeviceClass"]
    assert {item["metadata"]["name"] for item in classes} == {"gpu.drakit.dev", "mig.drakit.dev", "nic.drakit.dev", "tpu.drakit.dev"}
    for item in classes:
        expressions = [str(mapping["expression"]) for mapping in walk(item) if "expression" in mapping]
        assert expressions
        assert all(expression.startswith("device.driver == ") for expression in expressions)


def test_what_the_dockerfile_copies_exists_and_is_not_ignored() -> None:
    text = (ROOT / "Dockerfile").read_text()
    sources = [part for line in re.findall(r"^COPY (?!--from=)(.+)$", text, re.MULTILINE) for part in line.split()[:-1]]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        path = pathlib.PurePath(source)
        assert {str(place) for place in (path, *path.parents)} & allowed, f"{source} is in no folder that .dockerignore lets through"


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


def kustomizations_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "howto" / "run-on-a-cluster.md").read_text()
    return re.findall(r"```yaml\n(apiVersion: kustomize.+?)```", page, re.DOTALL)


@needs_kubectl
def test_the_overlay_of_ones_own_on_the_page_renders(tmp_path: pathlib.Path) -> None:
    shown, _ = kustomizations_of_the_page()
    (tmp_path / "kustomization.yaml").write_text(shown.replace("drakit/daemonset", os.path.relpath(ROOT / "daemonset", tmp_path)))
    daemonsets = {item["metadata"]["name"]: item for item in rendered(str(tmp_path)) if item["kind"] == "DaemonSet"}
    (container,) = daemonsets["drakit-nic"]["spec"]["template"]["spec"]["containers"]
    environ = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"] == "DRAKIT_NIC__EXCLUDE"}
    assert settings.load({}, environ=environ).group("nic").exclude == ("docker*", "cni0")
    assert container["image"] == "IMAGE:0.1.0"


@needs_kubectl
@pytest.mark.parametrize("name", ["gpu", "nic", "gpu-nic", "mock"])
def test_uninstall_stops_every_driver_and_runs_with_the_mounts_of_the_driver(name: str) -> None:
    before = {item["metadata"]["name"]: item for item in rendered(f"daemonset/overlays/{name}") if item["kind"] == "DaemonSet"}
    after = {item["metadata"]["name"]: item for item in rendered(f"daemonset/uninstall/{name}") if item["kind"] == "DaemonSet"}
    assert before.keys() == after.keys()
    for daemonset, item in after.items():
        kube_schema.validate(item)
        assert item["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "100%"}
        pod = item["spec"]["template"]["spec"]
        (driver,), (cleaner,) = before[daemonset]["spec"]["template"]["spec"]["containers"], pod["initContainers"]
        assert cleaner["args"] == ["uninstall-node", "--yes"]
        assert [cleaner[key] for key in ("image", "env", "volumeMounts", "securityContext")] == [
            driver[key] for key in ("image", "env", "volumeMounts", "securityContext")
        ]
        (done,) = pod["containers"]
        assert done["image"] == driver["image"]
        assert done.keys().isdisjoint({"env", "volumeMounts", "args", "readinessProbe"})
        assert done["securityContext"]["runAsUser"] != 0


@needs_kubectl
@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_moves_to_another_namespace_whole(name: str, tmp_path: pathlib.Path) -> None:
    shutil.copytree(ROOT / "daemonset", tmp_path / "drakit" / "daemonset")
    _, shown = kustomizations_of_the_page()
    (tmp_path / "kustomization.yaml").write_text(shown.replace("overlays/gpu-nic", f"overlays/{name}"))

    def in_order(items: Iterable[Any]) -> list[Any]:
        return sorted(items, key=lambda item: (item["kind"], item["metadata"]["name"]))

    moved = in_order(rendered(str(tmp_path)))
    expected = in_order(json.loads(json.dumps(overlay(name)).replace(NAMESPACE, "gpu-things")))
    for item, known in zip(moved, expected, strict=True):
        # kustomize gives one to objects of the cluster too whose kind it does not know; API servers leave it out.
        known["metadata"].setdefault("namespace", item["metadata"].get("namespace"))
        item["metadata"].setdefault("namespace", None)
        assert item == known
