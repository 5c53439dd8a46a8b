"""The chart's value files for distributions and its values for platforms render, match the schema of Kubernetes, and do what they say."""

import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from fakes import kube_schema, manifests
from release import versions
from unit.packaging import test_chart as charts

pytestmark = [
    manifests.needs_kubectl,
    pytest.mark.skipif(shutil.which("helm") is None, reason="helm renders the chart and is not installed"),
]
FOLDER = manifests.ROOT / charts.CHART
FILES = sorted((FOLDER / "values").glob("*.yaml"))
FAMILIES = ("--set", "nic.enabled=true")
PLATFORM = (
    "--set",
    "commonLabels.team=ml,serviceAccount.annotations.iam=node,networkPolicy.enabled=true,openshift.enabled=true,webhook.enabled=true",
)


def name(file: pathlib.Path) -> str:
    return file.stem


def host_paths(pod: Any) -> set[str]:
    return {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}


def pod_of(daemonset: Any) -> Any:
    return daemonset["spec"]["template"]["spec"]


def leaves(values: Any, path: str = "") -> "list[str]":
    """The dotted names of all values; those of an empty or open mapping end there."""
    closed = {"nodeSelector", "affinity", "resources", "updateStrategy", "labels", "annotations"}
    if not isinstance(values, dict) or not values or path.rpartition(".")[2] in closed:
        return [path]
    return [leaf for key, value in values.items() for leaf in leaves(value, f"{path}.{key}" if path else key)]


@pytest.mark.parametrize("file", FILES, ids=name)
def test_a_value_file_renders_what_kubernetes_takes(file: pathlib.Path) -> None:
    for item in charts.template("--values", str(file), *FAMILIES):
        kube_schema.validate(item)


@pytest.mark.parametrize("file", FILES, ids=name)
def test_pods_mount_the_folders_that_a_value_file_names(file: pathlib.Path) -> None:
    given = yaml.load(file.read_text("utf-8"), Loader=yaml.CSafeLoader)
    kubelet, cdi = given.get("kubeletDir", "/var/lib/kubelet"), given.get("cdiDir", "/var/run/cdi")
    for daemonset in charts.by_name(charts.template("--values", str(file), *FAMILIES), "DaemonSet").values():
        assert {f"{kubelet}/plugins", f"{kubelet}/plugins_registry", cdi} <= host_paths(pod_of(daemonset))


def test_the_page_and_the_charts_readme_list_every_value_file() -> None:
    for page in (FOLDER / "README.md", manifests.ROOT / "docs" / "howto" / "run-on-a-cluster.md"):
        assert set(re.findall(r"`values/(\w+)\.yaml`", page.read_text("utf-8"))) == set(map(name, FILES)), page


def test_the_charts_readme_has_every_value_with_its_default() -> None:
    values = yaml.load((FOLDER / "values.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    listed = re.findall(r"^\| `([\w.]+)` \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    assert listed == leaves(values)


@pytest.mark.parametrize("page", ["README.md", "daemonset/chart/README.md", "docs/howto/run-on-a-cluster.md"])
def test_every_helm_install_on_a_page_renders(page: str) -> None:
    lines = re.findall(r"^helm install .*$", (manifests.ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        command = line.replace("helm install", "helm template", 1)
        given = {**os.environ, "IMAGE": "registry.example.com/drakit"}
        ran = subprocess.run(["bash", "-c", command], cwd=manifests.ROOT, env=given, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{line}: {ran.stderr}"


def test_the_readme_begins_with_mock_hardware_and_an_image_that_is_there() -> None:
    """An image without a registry is in the cluster only after the line before has loaded it."""
    text = (manifests.ROOT / "README.md").read_text("utf-8")
    load, install = text.index("make image image-load CLUSTER=kind"), text.index("helm install drakit daemonset/chart")
    assert load < install
    rendered = charts.template("--values", str(FOLDER / "values" / "mock.yaml"))
    for daemonset in charts.by_name(rendered, "DaemonSet").values():
        (container,) = pod_of(daemonset)["containers"]
        assert container["image"] == f"drakit:{versions.agreed(manifests.ROOT)}"
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert "privileged" not in container["securityContext"]


def test_common_labels_are_on_every_object_and_pod() -> None:
    rendered = charts.template(*PLATFORM, *FAMILIES)
    for item in rendered:
        kube_schema.validate(item)
        assert item["metadata"]["labels"]["team"] == "ml", item["kind"]
        template = item.get("template") or item.get("spec", {}).get("template")
        if template is not None:
            assert template["metadata"]["labels"]["team"] == "ml", item["kind"]
        selector = item.get("spec", {}).get("selector", {})
        assert "team" not in selector.get("matchLabels", selector), "a selector cannot change, a label can"


def test_every_account_has_the_annotations() -> None:
    accounts = charts.by_name(charts.template(*PLATFORM, *FAMILIES), "ServiceAccount")
    assert {account: item["metadata"]["annotations"] for account, item in accounts.items()} == {
        f"drakit-{part}": {"iam": "node"} for part in ("gpu", "nic", "webhook")
    }


def test_openshift_lets_each_account_use_constraints_that_fit_its_pod() -> None:
    bindings = charts.by_name(charts.template(*PLATFORM, *FAMILIES), "RoleBinding")
    granted = {
        item["subjects"][0]["name"]: item["roleRef"]["name"] for item in bindings.values() if item["roleRef"]["name"].startswith("system:")
    }
    assert granted == {
        "drakit-gpu": "system:openshift:scc:privileged",
        "drakit-nic": "system:openshift:scc:privileged",
        "drakit-webhook": "system:openshift:scc:nonroot-v2",
    }
    assert not [item for item in charts.template() if item["metadata"]["name"].endswith("-scc")]


def test_network_policies_leave_the_drivers_metrics_and_nothing_of_mps_daemons() -> None:
    peers = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring"
    policies = charts.by_name(charts.template("--set", f"networkPolicy.enabled=true,{peers}"), "NetworkPolicy")
    driver, daemon = policies["drakit"]["spec"], policies["drakit-mps"]["spec"]
    peer = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    assert driver["ingress"] == [{"ports": [{"port": 51510, "protocol": "TCP"}], "from": [peer]}]
    assert driver["policyTypes"] == ["Ingress"]
    assert daemon["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "mps-daemon"
    assert daemon == {"podSelector": daemon["podSelector"], "policyTypes": ["Ingress", "Egress"]}


def test_extra_volumes_are_mounted_in_the_pod_of_their_family() -> None:
    volume = '[{"name": "nvidia", "hostPath": {"path": "/opt/nvidia", "type": "Directory"}}]'
    mount = '[{"name": "nvidia", "mountPath": "/opt/nvidia", "readOnly": true}]'
    rendered = charts.template("--set-json", f"gpu.extraVolumes={volume}", "--set-json", f"gpu.extraVolumeMounts={mount}", *FAMILIES)
    for item in rendered:
        kube_schema.validate(item)
    daemonsets = charts.by_name(rendered, "DaemonSet")
    gpu, nic = pod_of(daemonsets["drakit-gpu"]), pod_of(daemonsets["drakit-nic"])
    assert {"name": "nvidia", "mountPath": "/opt/nvidia", "readOnly": True} in gpu["containers"][0]["volumeMounts"]
    assert ("/opt/nvidia" in host_paths(gpu), "/opt/nvidia" in host_paths(nic)) == (True, False)


@pytest.mark.parametrize(
    "given, message",
    [
        (("--values", str(FOLDER / "values" / "mock.yaml")), "The hardware is pretended (dgx-a100-40gb-2gpu)"),
        ((), "make image image-load CLUSTER=kind"),
        (("--set", "image.repository=registry.example.com/drakit"), "kubectl label node NAME drakit.dev/gpu=true"),
    ],
)
def test_the_notes_say_what_to_do_next(given: tuple[str, ...], message: str) -> None:
    ran = charts.helm("install", "drakit", charts.CHART, "--dry-run=client", "--namespace", "drakit-system", *given)
    assert ran.returncode == 0, ran.stderr
    assert message in ran.stdout.partition("NOTES:")[2]
