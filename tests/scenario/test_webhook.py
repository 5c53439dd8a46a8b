"""The webhook behind an API server with the committed configuration: which writes it is asked about, and what becomes of them."""

import base64
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from drakit import settings
from drakit.cli.commands import webhook
from drakit.node import metrics
from drakit_cluster.api import apiserver, registry
from drakit_cluster.client import client
from drakit_cluster.objects import errors, resources
from fakes import parameters as p
from fakes import tls_files

DAEMONSET = pathlib.Path(__file__).parents[2] / "daemonset"
CONFIGURATION = DAEMONSET / "webhook" / "configuration.yaml"
PODS = DAEMONSET / "components" / "webhook-pods"
GOOD, BAD = p.config(p.NIC, p.nic(mtu=9000)), p.config(p.NIC, p.nic(mtu=20))
FOREIGN = p.config("gpu.example.com", {"mtu": "any"})
KINDS = {p.CLAIM: resources.CLAIM, p.TEMPLATE: resources.CLAIM_TEMPLATE, p.CLASS: resources.CLASS}


class Guarded:
    """An API server with the webhook in front of it."""

    def __init__(self, memory: registry.Registry, api: client.ApiClient, hook: webhook.Webhook, measured: metrics.Metrics) -> None:
        self.memory = memory
        self.api = api
        self.hook = hook
        self._measured = measured

    @property
    def asked(self) -> int:
        """How many reviews the webhook has answered."""
        text = self._measured.text().decode()
        return sum(int(float(line.rpartition(" ")[2])) for line in text.splitlines() if line.startswith("drakit_webhook_seconds_count"))


@pytest.fixture
def guarded(tmp_path: pathlib.Path) -> Iterator[Guarded]:
    files = tls_files.TlsFiles(tmp_path)
    measured = metrics.Metrics()
    memory = registry.Registry()
    ca = base64.b64encode(files.authority_pem).decode()
    with apiserver.ApiServer(memory) as server:
        flags = {"webhook.address": "127.0.0.1:0", "webhook.certificate": files.chain, "webhook.key": files.key}
        hook = webhook.Webhook(settings.load({**flags, "api.kubeconfig": account(server, tmp_path)}, environ={}), measured)
        hook.start()
        for file, path in ((CONFIGURATION, webhook.PATH), (PODS / "configuration.yaml", webhook.PODS_PATH)):
            configuration: Any = yaml.safe_load(file.read_text("utf-8"))
            configuration["webhooks"][0] |= {"clientConfig": {"url": f"https://{hook.address}{path}", "caBundle": ca}, "timeoutSeconds": 30}
            memory.create(resources.WEBHOOKS, configuration)
        token = server.issue_token("tester", ("system:masters",))
        with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as api:
            yield Guarded(memory, api, hook, measured)
        hook.stop()


def account(server: apiserver.ApiServer, folder: pathlib.Path) -> pathlib.Path:
    """Return a kubeconfig of the webhook's service account, which has the rights of the component and no others."""
    for rule in yaml.safe_load_all((PODS / "rbac.yaml").read_text("utf-8")):
        server.registry.create(next(one for one in resources.SERVED if one.kind == rule["kind"]), rule)
    token = server.issue_token("system:serviceaccount:drakit-system:drakit-webhook", ("system:serviceaccounts", "system:authenticated"))
    server.write_kubeconfig(folder / "kubeconfig", token=token)
    return folder / "kubeconfig"


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_parameter_is_refused_at_creation_with_its_field(guarded: Guarded, kind: str, version: str) -> None:
    resource = dataclasses.replace(KINDS[kind], version=version)
    with pytest.raises(errors.InvalidError) as refused:
        guarded.api.create(resource, p.holding(kind, FOREIGN, BAD, version=version))
    path = p.PATHS[kind].replace("[0]", "[1]")
    assert str(refused.value) == (
        f'admission webhook "config.webhook.drakit.dev" denied the request: {path}.opaque.parameters.mtu: 20 is not between 68 and 65535'
    )
    guarded.api.create(resource, p.holding(kind, GOOD, version=version))
    assert guarded.asked == 2


def test_only_claims_with_parameters_of_the_drivers_reach_the_webhook(guarded: Guarded) -> None:
    for kind, resource in KINDS.items():
        guarded.api.create(resource, p.holding(kind, name="none"))
        guarded.api.create(resource, p.holding(kind, FOREIGN, name="foreign"))
    assert guarded.asked == 0


def test_labels_finalizers_and_deletions_never_reach_the_webhook(guarded: Guarded) -> None:
    guarded.hook.stop()  # Where it is down, the failurePolicy lets mistakes pass.
    made: Any = guarded.api.create(resources.CLASS, p.holding(p.CLASS, BAD))
    made["metadata"] |= {"labels": {"a": "b"}, "finalizers": ["example.com/held"]}
    made = guarded.api.update(resources.CLASS, made)
    guarded.api.delete(resources.CLASS, "x")
    held: Any = guarded.api.get(resources.CLASS, "x")
    held["metadata"]["finalizers"] = []
    guarded.api.update(resources.CLASS, held)
    with pytest.raises(errors.NotFoundError):
        guarded.api.get(resources.CLASS, "x")
    assert guarded.asked == 0


def test_a_changed_spec_reaches_the_webhook(guarded: Guarded) -> None:
    made: Any = guarded.api.create(resources.CLASS, p.holding(p.CLASS, GOOD))
    made["spec"]["config"] = [BAD]
    with pytest.raises(errors.InvalidError, match=r"spec\.config\[0\]\.opaque\.parameters\.mtu"):
        guarded.api.update(resources.CLASS, made)
    assert guarded.asked == 2


def nic_claim(kind: str = p.CLAIM, device_class: str = p.NIC) -> dict[str, Any]:
    claim = p.holding(kind, GOOD, name="nic")
    spec = claim["spec"] if kind == p.CLAIM else claim["spec"]["spec"]
    spec["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": device_class}}]
    return claim


def pod(name: str, *, host_network: bool = True, source: str = "resourceClaimName", namespace: str = "default") -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "net"}]}}
    spec = {"hostNetwork": host_network, "containers": [container], "resourceClaims": [{"name": "net", source: "nic"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("kind, source", [(p.CLAIM, "resourceClaimName"), (p.TEMPLATE, "resourceClaimTemplateName")])
def test_a_pod_of_the_hosts_network_with_a_nic_is_refused_with_the_fix(guarded: Guarded, kind: str, source: str) -> None:
    guarded.api.create(KINDS[kind], nic_claim(kind))
    with pytest.raises(errors.InvalidError) as refused:
        guarded.api.create(resources.POD, pod("hostnet", source=source))
    assert str(refused.value) == (
        'admission webhook "pods.webhook.drakit.dev" denied the request: spec.containers[0].resources.claims[0]: the pod is in the host\'s network '
        "(hostNetwork: true), where no NIC is attached: its container can never start; remove spec.hostNetwork, or the claim net from the container"
    )
    asked = guarded.asked
    guarded.api.create(resources.POD, pod("own", host_network=False, source=source))
    assert guarded.asked == asked, "the API server asks for nothing that cannot be wrong"


def test_a_class_that_the_webhook_reads_decides_what_a_pod_requests(guarded: Guarded) -> None:
    selector = {"cel": {"expression": f'device.driver == "{p.NIC}"'}}
    fast: Any = {"apiVersion": "resource.k8s.io/v1", "kind": p.CLASS, "metadata": {"name": "fast"}, "spec": {"selectors": [selector]}}
    guarded.api.create(resources.CLAIM, nic_claim(device_class="fast"))
    guarded.api.create(resources.POD, pod("of-an-unknown-class"))
    guarded.api.create(resources.CLASS, fast)
    with pytest.raises(errors.InvalidError, match="can never start"):
        guarded.api.create(resources.POD, pod("of-a-class-for-nics"))


def test_a_webhook_that_is_down_stops_no_pod(guarded: Guarded) -> None:
    guarded.api.create(resources.CLAIM, nic_claim())
    guarded.hook.stop()
    guarded.api.create(resources.POD, pod("hostnet"))


def test_pods_of_the_system_and_pods_whose_claim_comes_later_are_created(guarded: Guarded) -> None:
    guarded.api.create(resources.POD, pod("early"))
    guarded.api.create(resources.CLAIM, nic_claim())
    asked = guarded.asked
    guarded.api.create(resources.POD, pod("system", namespace="kube-system"), namespace="kube-system")
    assert guarded.asked == asked


def test_a_name_for_two_interfaces_of_a_claim_is_refused(guarded: Guarded) -> None:
    claim = p.holding(p.CLAIM, p.config(p.NIC, p.nic(interfaceName="net1")))
    claim["spec"]["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": p.NIC, "count": 2}}]
    with pytest.raises(errors.InvalidError, match=r"interfaceName: several devices of the claim would get net1 \(request r\)"):
        guarded.api.create(resources.CLAIM, claim)


def test_two_claims_that_give_a_pod_one_interface_name_are_refused(guarded: Guarded) -> None:
    template = p.holding(p.TEMPLATE, p.config(p.NIC, p.nic(interfaceName="net1")), name="nic")
    template["spec"]["spec"]["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": p.NIC}}]
    guarded.api.create(resources.CLAIM_TEMPLATE, template)
    wanted: Any = pod("pair", host_network=False, source="resourceClaimTemplateName")
    wanted["spec"]["resourceClaims"].append({"name": "more", "resourceClaimTemplateName": "nic"})
    guarded.api.create(resources.POD, {**wanted, "metadata": {"name": "uses-one", "namespace": "default"}})
    wanted["spec"]["containers"][0]["resources"]["claims"].append({"name": "more"})
    with pytest.raises(errors.InvalidError, match=r"claims\[1\]: the claims net and more both give the pod the interface name net1"):
        guarded.api.create(resources.POD, wanted)
