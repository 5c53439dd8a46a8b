"""The Helm chart renders what the overlays render, matches the schema of Kubernetes, and refuses values that it does not know."""

import base64
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from drakit import settings
from drakit.core import quantity
from drakit.serving import certificates
from fakes import helm_values, kube_schema, manifests

pytestmark = [
    manifests.needs_kubectl,
    pytest.mark.skipif(shutil.which("helm") is None, reason="helm renders the chart and is not installed"),
]
CHART = "daemonset/chart"
HELM_LABELS = {"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["helm", *arguments], cwd=manifests.ROOT, capture_output=True, text=True, check=False)


@functools.cache
def template(*arguments: str, namespace: str = manifests.NAMESPACE, release: str = "drakit") -> list[Any]:
    run = helm("template", release, CHART, "--namespace", namespace, *arguments)
    assert run.returncode == 0, run.stderr
    return [item for item in yaml.load_all(run.stdout, Loader=yaml.CSafeLoader) if item is not None]


def values_of(overlay: str) -> tuple[str, str]:
    return "--values", f"{CHART}/ci/{overlay}-values.yaml"


def by_name(found: Iterable[Any], kind: str) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in found if item["kind"] == kind}


def comparable(value: Any) -> Any:
    """The object without Helm's own labels, and with lists whose order means nothing as mappings."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: comparable(item) for key, item in value.items() if key not in HELM_LABELS}
    if kept.get("imagePullPolicy") == "IfNotPresent":
        del kept["imagePullPolicy"]  # The default for an image with a tag.
    for key, identity in (("env", "name"), ("volumes", "name"), ("volumeMounts", "mountPath")):
        if key in kept:
            names = [entry[identity] for entry in kept[key]]
            assert len(set(names)) == len(names), f"{key}: one entry for each {identity}"
            kept[key] = {entry[identity]: entry for entry in kept[key]}
    return kept


def identified(found: Iterable[Any]) -> dict[tuple[str, str, str], Any]:
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): comparable(item)
        for item in found
        if item["kind"] != "Namespace"
    }


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_the_chart_renders_the_same_objects_as_the_overlay(overlay: str) -> None:
    chart, kustomized = identified(template(*values_of(overlay))), identified(manifests.overlay(overlay))
    assert chart.keys() == kustomized.keys()
    for key, item in kustomized.items():
        assert chart[key] == item, key


def test_the_chart_renders_the_same_webhook_as_the_kustomization() -> None:
    plain, with_webhook = identified(template()), identified(template("--set", "webhook.enabled=true"))
    added = {key: item for key, item in with_webhook.items() if key not in plain}
    secret = added.pop(("Secret", manifests.NAMESPACE, "drakit-webhook"))
    (hook,) = added["ValidatingWebhookConfiguration", "", "drakit-webhook"]["webhooks"]
    assert hook["clientConfig"].pop("caBundle") == secret["data"]["tls.crt"]
    assert added == identified(manifests.rendered("daemonset/webhook"))


def test_the_chart_renders_the_same_reviews_of_pods_as_the_component() -> None:
    plain, found = identified(template()), identified(template("--set", "webhook.enabled=true,webhook.pods=true"))
    added = {key: item for key, item in found.items() if key not in plain and key[0] != "Secret"}
    for (kind, *_), item in added.items():
        if kind == "ValidatingWebhookConfiguration":
            assert item["webhooks"][0]["clientConfig"].pop("caBundle")
    assert added == identified(manifests.webhook_with_pods())


def test_the_certificate_of_the_chart_is_for_its_service_and_works(tmp_path: pathlib.Path) -> None:
    found = template("--set", "webhook.enabled=true", namespace="devices", release="lab")
    (secret,), (hooks,) = by_name(found, "Secret").values(), by_name(found, "ValidatingWebhookConfiguration").values()
    for key in ("tls.crt", "tls.key"):
        (tmp_path / key).write_bytes(base64.b64decode(secret["data"][key]))
    server = certificates.Certificate(tmp_path / "tls.crt", tmp_path / "tls.key", key="webhook.certificate").context()
    config = hooks["webhooks"][0]["clientConfig"]
    client = ssl.create_default_context(cadata=base64.b64decode(config["caBundle"]).decode())
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    name = f"{config['service']['name']}.{config['service']['namespace']}.svc"
    ends = (client.wrap_bio(theirs, ours, server_hostname=name), server.wrap_bio(ours, theirs, server_side=True))
    assert name == "lab-drakit-webhook.devices.svc"
    for end in (*ends, *ends):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert ends[0].version() == "TLSv1.3"


def test_the_webhooks_certificate_can_come_from_cert_manager_or_a_secret() -> None:
    managed = template("--set", "webhook.enabled=true,webhook.certificate.certManager=true")
    kustomized = manifests.rendered("daemonset/overlays/webhook")
    kinds = {"Issuer", "Certificate", "ValidatingWebhookConfiguration", "Deployment"}
    for key, item in identified(kustomized).items():
        if key[0] in kinds:
            assert identified(managed)[key] == item
    given = template("--set", "webhook.enabled=true,webhook.certificate.secret=mine,webhook.certificate.caBundle=QUJD")
    assert by_name(given, "Secret") == {}
    assert by_name(given, "Deployment")["drakit-webhook"]["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"] == "mine"
    assert by_name(given, "ValidatingWebhookConfiguration")["drakit-webhook"]["webhooks"][0]["clientConfig"]["caBundle"] == "QUJD"


def test_another_name_of_a_driver_reaches_the_webhook_and_its_conditions() -> None:
    found = template("--set", "webhook.enabled=true,gpu.driverName=gpu.nvidia.com,webhook.failurePolicy=Fail")
    assert variables(by_name(found, "Deployment")["drakit-webhook"])["DRAKIT_GPU__DRIVER_NAME"] == "gpu.nvidia.com"
    (hook,) = by_name(found, "ValidatingWebhookConfiguration")["drakit-webhook"]["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert 'in ["gpu.nvidia.com", "nic.drakit.dev"]' in hook["matchConditions"][-1]["expression"]


MONITORING = "metrics.podMonitor.enabled=true,metrics.dashboard.enabled=true"


def test_the_chart_renders_the_same_monitoring_as_the_components(tmp_path: pathlib.Path) -> None:
    def inside(folder: str) -> str:
        return os.path.relpath(manifests.ROOT / "daemonset" / folder, tmp_path)

    components = [inside("components/pod-monitor"), inside("components/dashboard")]
    own = {"kind": "Kustomization", "resources": [inside("overlays/gpu-nic")], "components": components}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    chart = identified(template(*values_of("gpu-nic"), "--set", MONITORING))
    kustomized = identified(manifests.rendered(str(tmp_path)))
    for found in (chart, kustomized):
        dashboard = found["ConfigMap", manifests.NAMESPACE, "drakit-dashboard"]
        dashboard["data"] = json.loads(dashboard["data"]["drakit.json"])
    assert chart == kustomized


def profiles_of_the_component() -> list[str]:
    file = manifests.ROOT / "daemonset" / "components" / "extended-resources" / "deviceclasses.yaml"
    expressions = [item["spec"]["selectors"][0]["cel"]["expression"] for item in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)]
    return [expression.rpartition("== ")[2].strip('"') for expression in expressions]


def extended(*profiles: str) -> tuple[str, str]:
    values = {"gpu": "nvidia.com/gpu", "mig": list(profiles)}
    return "--set-json", f"gpu.deviceClasses.extendedResources={json.dumps(values)}"


def test_the_chart_renders_the_same_extended_resources_as_the_component(tmp_path: pathlib.Path) -> None:
    def inside(folder: str) -> str:
        return os.path.relpath(manifests.ROOT / "daemonset" / folder, tmp_path)

    own = {"kind": "Kustomization", "resources": [inside("overlays/gpu")], "components": [inside("components/extended-resources")]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    found = template(*values_of("gpu"), *extended(*profiles_of_the_component()))
    assert identified(found) == identified(manifests.rendered(str(tmp_path)))
    for item in by_name(found, "DeviceClass").values():
        kube_schema.validate(item)


def test_a_profile_is_a_class_of_its_own_named_as_nvidias_device_plugin_names_it() -> None:
    found = by_name(
        template(*extended("1g.5gb+me"), "--set", "gpu.driverName=gpu.nvidia.com,gpu.deviceClasses.mig=mig.nvidia.com"), "DeviceClass"
    )
    spec = found["1g.5gb.me.mig.nvidia.com"]["spec"]
    assert spec["extendedResourceName"] == "nvidia.com/mig-1g.5gb.me"
    assert spec["selectors"][0]["cel"]["expression"].endswith('device.attributes["gpu.nvidia.com"].profile == "1g.5gb+me"')
    assert "extendedResourceName" not in found["mig.nvidia.com"]["spec"]


def test_the_monitor_finds_the_pods_and_their_port() -> None:
    found = template(*values_of("gpu-nic"), "--set", MONITORING)
    monitor = by_name(found, "PodMonitor")["drakit"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    addresses = [rule for rule in endpoint["relabelings"] if rule.get("targetLabel") == "__address__"]
    for address, expected in (("10.0.0.1", "10.0.0.1:51510"), ("fd00::1", "[fd00::1]:51510")):
        matches = [(rule, re.fullmatch(rule["regex"], address)) for rule in addresses]
        assert [rule["replacement"].replace("$1", match[1]) for rule, match in matches if match] == [expected]
    for daemonset in by_name(found, "DaemonSet").values():
        assert variables(daemonset)["DRAKIT_SERVE__ADDRESS"] == "$(POD_IP):51510"
        labels = daemonset["spec"]["template"]["metadata"]["labels"]
        selector = monitor["spec"]["selector"]
        assert selector["matchLabels"].items() <= labels.items()
        assert all(labels[one["key"]] in one["values"] for one in selector["matchExpressions"])


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_every_object_of_the_chart_matches_the_schema_of_kubernetes(overlay: str) -> None:
    for item in template(*values_of(overlay)):
        kube_schema.validate(item)


def test_helm_finds_nothing_to_complain_of() -> None:
    for overlay in manifests.OVERLAYS:
        run = helm("lint", "--strict", CHART, *values_of(overlay))
        assert run.returncode == 0, run.stdout + run.stderr


WRONG = [
    ("gpu.enbled=false", "additional properties 'enbled' not allowed"),
    ("nix=true", "additional properties 'nix' not allowed"),
    ("image.digest=sha256:1", "/image/digest"),
    ("settings.gpuu=false", "at '/settings': additional properties 'gpuu' not allowed"),
    ("settings.node=n1", "at '/settings': additional properties 'node' not allowed"),
    ("settings.gpu.share_memry=true", "at '/settings/gpu': additional properties 'share_memry' not allowed"),
    ("settings.gpu.shares=many", "at '/settings/gpu/shares': got string, want integer"),
    ("settings.log.level=loud", "at '/settings/log/level': value must be one of 'debug', 'info', 'warning', 'error'"),
    ("settings.nic.rules[0].spede=10G", "additional properties 'spede' not allowed"),
    ("gpu.resources.limit.memory=1Gi", "at '/gpu/resources': additional properties 'limit' not allowed"),
    ("gpu.tolerations[0].efect=NoSchedule", "at '/gpu/tolerations/0': additional properties 'efect' not allowed"),
    ("nic.updateStrategy.rollingUpdate.maxSurge=one", "/nic/updateStrategy/rollingUpdate/maxSurge"),
    ("gpu.affinity.nodeAfinity.x=y", "at '/gpu/affinity': additional properties 'nodeAfinity' not allowed"),
    ("gpu.extraEnv[0].name=A,gpu.extraEnv[0].valu=b", "at '/gpu/extraEnv/0': additional properties 'valu' not allowed"),
    ("gpu.extraVolumes[0].name=a,gpu.extraVolumes[0].hostpath.path=/a", "additional properties 'hostpath' not allowed"),
    ("commonLabels.app\\.kubernetes\\.io/name=x", "invalid propertyName 'app.kubernetes.io/name'"),
    ("networkPolicy.metricsFrom[0].podSelector.matchLabel.a=b", "additional properties 'matchLabel' not allowed"),
    ("kubeletDir=var/lib/kubelet", "/kubeletDir"),
    ("gpu.driverName=GPU", "/gpu/driverName"),
    ("gpu.deviceClasses.extendedResources.gpu=gpu", "/gpu/deviceClasses/extendedResources/gpu"),
    ("gpu.deviceClasses.extendedResources.mig={1g5gb}", "/gpu/deviceClasses/extendedResources/mig/0"),
    ("mock.machine=foo", "at '/mock/machine': value must be one of '', 'dgx-a100-40gb', 'dgx-a100-40gb-2gpu'"),
    ("image.repository=drakit:0.1", "at '/image/repository': 'drakit:0.1' does not match pattern"),
    ("nameOverride=A_B", "at '/nameOverride': 'A_B' does not match pattern"),
    ("fullnameOverride=a.b", "at '/fullnameOverride': 'a.b' does not match pattern"),
    ("gpu.resources.limits.memory=lots", "at '/gpu/resources/limits/memory': 'lots' does not match pattern"),
    ("webhook.certificate.secret=x", "at '/webhook/certificate/caBundle': minLength: got 0, want 1"),
    ("tpu=true", "additional properties 'tpu' not allowed"),
]


@functools.cache
def refusals() -> dict[int, str]:
    """Return what helm says to each wrong value, by its number. It gets as many of them at once as are in different objects."""
    said: dict[int, str] = {}
    for numbers in helm_values.apart([re.sub(r"\[0\]|=.*", "", given) for given, _ in WRONG]):
        run = helm("template", "drakit", CHART, *(word for number in numbers for word in ("--set", WRONG[number][0])))
        assert run.returncode != 0
        said |= dict.fromkeys(numbers, run.stderr)
    return said


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[given for given, _ in WRONG])
def test_values_that_cannot_be_are_refused_by_name(number: int) -> None:
    assert WRONG[number][1] in refusals()[number]


@pytest.mark.parametrize(
    "values, reason",
    [
        ("gpu.enabled=false", "no device family is enabled: set gpu.enabled or nic.enabled"),
        ("nic.enabled=true,gpu.driverName=nic.drakit.dev", "gpu.driverName and nic.driverName are both nic.drakit.dev"),
        ("gpu.deviceClasses.mig=gpu.drakit.dev", "gpu.deviceClasses.mig: another DeviceClass has the name gpu.drakit.dev"),
    ],
)
def test_values_that_cannot_be_together_are_refused(values: str, reason: str) -> None:
    run = helm("template", "drakit", CHART, "--set", values)
    assert run.returncode != 0
    assert reason in run.stderr


def test_every_value_has_a_place_in_the_schema_and_the_other_way_round() -> None:
    def check(values: Any, schema: Any, path: str) -> None:
        if "properties" in schema and path != ".settings":
            assert values.keys() == schema["properties"].keys() - {"global"}, path
            for key, value in values.items():
                check(value, schema["properties"][key], f"{path}.{key}")

    folder = manifests.ROOT / CHART
    check(
        yaml.load((folder / "values.yaml").read_text(), Loader=yaml.CSafeLoader),
        json.loads((folder / "values.schema.json").read_text()),
        "",
    )


def variables(daemonset: Any) -> dict[str, str]:
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_settings_of_the_chart_are_those_that_the_driver_reads() -> None:
    given = {
        "settings": {
            "log": {"level": "debug", "format": "console"},
            "gpu": {
                "share_memory": True,
                "shares": 8,
                "ignored_xids": [31, 43],
                "mig_layouts": [{"match": "product:NVIDIA A100-*", "partitions": {"3g.20gb": 1, "1g.5gb": 3}}],
            },
            "nic": {"exclude": ["docker*"], "rules": [{"match": "eth*", "speed": "10G"}]},
        }
    }
    found = template("--set-json", f"settings={json.dumps(given['settings'])}", "--set", "nic.enabled=true")
    for daemonset in by_name(found, "DaemonSet").values():
        result = {name: text.replace("$(POD_NAMESPACE)", manifests.NAMESPACE) for name, text in variables(daemonset).items()}
        environ = {name: text for name, text in result.items() if name.startswith("DRAKIT_")}
        read = settings.load(
            {}, environ=environ | {"DRAKIT_NODE__NAME": "n1", "DRAKIT_NODE__POD_UID": "", "DRAKIT_SERVE__ADDRESS": "127.0.0.1:1"}
        )
        assert (read.log.level, read.log.format) == ("debug", "console")
        gpu, nic = read.group("gpu"), read.group("nic")
        assert (gpu.share_memory, gpu.shares, gpu.ignored_xids) == (True, 8, (31, 43))
        assert dict(gpu.mig_layouts[0].partitions) == {"3g.20gb": 1, "1g.5gb": 3}
        assert (nic.exclude, nic.rules[0].speed) == (("docker*",), quantity.Quantity.of("10G"))


@pytest.mark.parametrize(
    "given,privileged", [('{"vfio": ["driver:igbvf"]}', True), ('{"vfio": []}', False), ('{"whole": ["eth1"]}', False)]
)
def test_the_nic_driver_is_privileged_only_to_pass_nics_to_virtual_machines(given: str, *, privileged: bool) -> None:
    found = by_name(template("--set-json", f"settings.nic={given}", "--set", "nic.enabled=true"), "DaemonSet")["drakit-nic"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    security = container["securityContext"]
    assert (security.get("privileged", False), security["allowPrivilegeEscalation"]) == (privileged, privileged)


@pytest.mark.parametrize(
    "given,mounted",
    [
        ('{"sriov": [{"match": "driver:igb", "vfs": 4}]}', True),
        ('{"sriov": []}', False),
        ('{"whole": ["eth1"]}', False),
        ('{"sriov": [{"match": "driver:igb", "vfs": 4}], "vfio": ["driver:igbvf"]}', False),  # A privileged container has it already.
    ],
)
def test_the_nic_driver_can_write_below_sys_only_to_create_virtual_functions(given: str, *, mounted: bool) -> None:
    found = by_name(template("--set-json", f"settings.nic={given}", "--set", "nic.enabled=true"), "DaemonSet")["drakit-nic"]
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"] if mount["mountPath"].startswith("/sys")}
    assert mounts == ({"pci": {"name": "pci", "mountPath": "/sys/devices"}} if mounted else {})
    volumes = [volume for volume in pod["volumes"] if volume["name"] == "pci"]
    assert volumes == ([{"name": "pci", "hostPath": {"path": "/sys/devices", "type": "Directory"}}] if mounted else [])


def test_another_release_has_names_of_its_own_and_policies_for_its_own_accounts() -> None:
    found = template(*values_of("gpu-nic"), namespace="devices", release="lab")
    for item in found:
        assert item["metadata"]["name"].startswith("lab-drakit") or item["kind"] == "DeviceClass"
        assert item["metadata"].get("namespace", "devices") == "devices"
    policies = by_name(found, "ValidatingAdmissionPolicy")
    for name in ("lab-drakit-gpu-mps", "lab-drakit-gpu-pods"):
        (condition,) = policies.pop(name)["spec"]["matchConditions"]
        assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:devices:lab-drakit-gpu"'
    for name, policy in policies.items():
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:devices:{name}"'
    accounts = by_name(found, "ServiceAccount")
    assert accounts.keys() == policies.keys() == by_name(found, "DaemonSet").keys()
    for name, binding in by_name(found, "ClusterRoleBinding").items():
        assert binding["subjects"][0]["name"] in accounts, name
        assert binding["roleRef"]["name"] in by_name(found, "ClusterRole")


def test_another_name_of_a_driver_reaches_its_rights_policy_classes_and_settings() -> None:
    found = template("--set", "gpu.driverName=gpu.nvidia.com", "--set", "gpu.deviceClasses.gpu=gpu.nvidia.com")
    assert variables(by_name(found, "DaemonSet")["drakit-gpu"])["DRAKIT_GPU__DRIVER_NAME"] == "gpu.nvidia.com"
    rules = by_name(found, "ClusterRole")["drakit-gpu"]["rules"]
    assert [rule["resourceNames"] for rule in rules if "resourceNames" in rule] == [["gpu.nvidia.com"]]
    named = {one["name"]: one["expression"] for one in by_name(found, "ValidatingAdmissionPolicy")["drakit-gpu"]["spec"]["variables"]}
    assert named["driver"] == '"gpu.nvidia.com"'
    (selector,) = by_name(found, "DeviceClass")["gpu.nvidia.com"]["spec"]["selectors"]
    assert selector["cel"]["expression"] == 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"'


def test_the_image_can_be_given_by_digest_and_pulled_with_a_secret() -> None:
    digest = f"sha256:{'a' * 64}"
    pods = [
        item["spec"]["template"]["spec"]
        for item in template(
            "--set", f"image.repository=registry.example.com:5000/drakit,image.digest={digest},imagePullSecrets[0].name=pull"
        )
        if item["kind"] == "DaemonSet"
    ]
    assert [pod["containers"][0]["image"] for pod in pods] == [f"registry.example.com:5000/drakit@{digest}"]
    assert [pod["imagePullSecrets"] for pod in pods] == [[{"name": "pull"}]]


def test_another_folder_of_the_kubelet_is_mounted_and_passed_to_the_driver() -> None:
    daemonset = by_name(template("--set", "kubeletDir=/var/snap/kubelet,cdiDir=/etc/cdi"), "DaemonSet")["drakit-gpu"]
    pod = daemonset["spec"]["template"]["spec"]
    mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    result = variables(daemonset)
    for name, variable in (("plugins", "PLUGINS_DIR"), ("registry", "REGISTRY_DIR"), ("cdi", "CDI_DIR")):
        assert mounted[name] == on_host[name] == result[f"DRAKIT_NODE__{variable}"]


def test_nvidias_driver_container_is_one_value() -> None:
    result = variables(by_name(template("--set", "gpu.driverRoot=/run/nvidia/driver"), "DaemonSet")["drakit-gpu"])
    assert result["DRAKIT_GPU__DRIVER_ROOT"] == result["DRAKIT_GPU__DEV_ROOT"] == "/host/run/nvidia/driver"
    assert result["DRAKIT_GPU__DRIVER_ROOT_ON_HOST"] == "/run/nvidia/driver"


def test_policy_restore_role_and_classes_can_be_left_out() -> None:
    given = "admissionPolicy.enabled=false,rbac.restore=false,gpu.deviceClasses.create=false"
    found = template("--set", given)
    assert {item["kind"] for item in found} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"}
    assert by_name(found, "ClusterRole").keys() == {"drakit-gpu"}


def test_without_policies_the_driver_may_create_no_pods() -> None:
    found = template("--set", "admissionPolicy.enabled=false")
    rules = [rule for kind in ("Role", "ClusterRole") for role in by_name(found, kind).values() for rule in role["rules"]]
    assert [rule for rule in rules if "pods" in rule["resources"]] == []
    assert "DRAKIT_GPU__MPS_TEMPLATE" not in variables(by_name(found, "DaemonSet")["drakit-gpu"])
