"""The webhook's manifests render, match the Kubernetes schema, give it no rights, and agree with the program."""

import pathlib
from typing import Any

import pytest

from drakit import settings
from drakit.admission import opaque
from drakit.cli import composition
from drakit.cli.commands import webhook
from fakes import installed_drivers, kube_schema, manifests

CERT_MANAGER = "cert-manager.io/v1"

pytestmark = manifests.needs_kubectl


@pytest.fixture(scope="module", params=["daemonset/webhook", "daemonset/overlays/webhook"])
def objects(request: pytest.FixtureRequest) -> list[Any]:
    return manifests.rendered(request.param)


def of(objects: list[Any], kind: str) -> Any:
    (item,) = [item for item in objects if item["kind"] == kind]
    return item


def pod(objects: list[Any]) -> Any:
    return of(objects, "Deployment")["spec"]["template"]["spec"]


def test_every_object_matches_the_schema_of_kubernetes(objects: list[Any]) -> None:
    for item in objects:
        if item["apiVersion"] != CERT_MANAGER:
            kube_schema.validate(item)


def test_it_has_no_rights_no_token_and_no_privilege(objects: list[Any]) -> None:
    kinds = {item["kind"] for item in objects}
    assert {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & kinds == set()
    assert of(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    spec = pod(objects)
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 65532)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() == set()
    assert [volume for volume in spec["volumes"] if "hostPath" in volume] == []
    assert of(objects, "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in of(objects, "NetworkPolicy")["spec"]


@pytest.mark.parametrize("folder", ["daemonset/webhook", *(f"daemonset/overlays/{name}" for name in manifests.OVERLAYS)])
def test_the_webhooks_service_gives_no_pod_variables_that_look_like_settings(folder: str) -> None:
    """The kubelet sets DRAKIT_WEBHOOK_PORT and others for a Service drakit-webhook; an unknown DRAKIT_ variable ends the driver."""
    pods = [item["spec"]["template"]["spec"] for item in manifests.rendered(folder) if item["kind"] in ("DaemonSet", "Deployment")]
    assert pods
    assert [spec.get("enableServiceLinks") for spec in pods] == [False] * len(pods)


def test_the_pod_serves_where_the_service_and_the_probes_look(objects: list[Any]) -> None:
    (container,) = pod(objects)["containers"]
    variables = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    known = {settings.ENV_PREFIX + key.replace(".", settings.ENV_NESTING).upper() for key, _ in settings.known_keys()}
    assert set(variables) - {"POD_IP"} <= known
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert variables["DRAKIT_WEBHOOK__ADDRESS"].endswith(f":{ports['https']}")
    assert variables["DRAKIT_SERVE__ADDRESS"].endswith(f":{ports['metrics']}")
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {"metrics"}
    assert of(objects, "Service")["spec"]["ports"][0]["targetPort"] == "https"
    assert of(objects, "Service")["spec"]["selector"].items() <= of(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    (mount,) = container["volumeMounts"]
    default = settings.Webhook()
    assert {default.certificate.parent, default.key.parent} == {pathlib.Path(mount["mountPath"])}
    assert (default.certificate.name, default.key.name) == ("tls.crt", "tls.key"), "the keys of a Secret of type kubernetes.io/tls"


def test_the_configuration_names_what_the_program_checks_and_never_blocks_a_deletion(objects: list[Any]) -> None:
    (hook,) = of(objects, "ValidatingWebhookConfiguration")["webhooks"]
    (rule,) = hook["rules"]
    assert (rule["apiGroups"], tuple(rule["apiVersions"])) == ([opaque.GROUP], opaque.VERSIONS)
    assert set(rule["resources"]) == {kind.resource for kind in opaque.KINDS.values()}, "and no subresource"
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 3, "None")
    service = of(objects, "Service")["metadata"]
    assert hook["clientConfig"]["service"] == {
        "name": service["name"],
        "namespace": service["namespace"],
        "path": webhook.PATH,
        "port": 443,
    }
    expression = hook["matchConditions"][-1]["expression"]
    served = [family.driver_name(family.options()) for family in map(installed_drivers.of, ("gpu", "nic")) if family.options]
    assert all(f'"{driver}"' in expression for driver in served)
    assert composition.opaque_rules(settings.defaults()).keys() >= set(served)


def test_the_certificate_is_for_the_name_that_the_api_server_calls(objects: list[Any]) -> None:
    service, secret = of(objects, "Service")["metadata"], pod(objects)["volumes"][0]["secret"]["secretName"]
    name = f"{service['name']}.{service['namespace']}.svc"
    page = (manifests.ROOT / "docs" / "howto" / "validate-at-admission.md").read_text("utf-8")
    assert f"subjectAltName=DNS:{name}\n" in page
    assert f"create secret tls {secret} " in page
    for item in objects:
        if item["apiVersion"] == CERT_MANAGER and item["kind"] == "Certificate":
            assert (item["spec"]["dnsNames"], item["spec"]["secretName"]) == ([name], secret)
            injected = of(objects, "ValidatingWebhookConfiguration")["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
            assert injected == f"{item['metadata']['namespace']}/{item['metadata']['name']}"
