"""The webhook of an author's driver: the manifests that ``drakit new`` writes, and ``examples/everything`` as a process that an API server asks."""

import base64
import copy
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.client import client
from drakit_cluster.objects import errors, resources
from fakes import kube_schema, manifests, tls_files, webhook_process
from fakes import parameters as p

pytestmark = manifests.needs_kubectl
DRIVER = "gpu.example.com"
FOLDER = "examples/everything"
CONFIGURATION = "ValidatingWebhookConfiguration"
LONG = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}


def gpu(**sharing: object) -> dict[str, object]:
    return {"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", "sharing": sharing}


@pytest.fixture
def configuration() -> Any:
    return copy.deepcopy(next(item for item in manifests.example_with_webhook("everything") if item["kind"] == CONFIGURATION))


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[webhook_process.WebhookProcess, tls_files.TlsFiles]]:
    """The webhook, which remembers nothing of a review."""
    files = tls_files.TlsFiles(tmp_path_factory.mktemp("tls"))
    with webhook_process.WebhookProcess(files, "everything_driver", manifests.ROOT / FOLDER) as running:
        yield running, files


@pytest.fixture
def api(configuration: Any, hook: tuple[webhook_process.WebhookProcess, tls_files.TlsFiles]) -> Iterator[client.ApiClient]:
    """A client of an API server with the configuration of the manifests, but for the service, which no local cluster has."""
    running, files = hook
    authority = base64.b64encode(files.authority_pem).decode()
    configuration["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{running.port}/validate", "caBundle": authority}
    with apiserver.ApiServer(registry.Registry()) as server:
        server.registry.create(resources.WEBHOOKS, configuration)
        token = server.issue_token("tester", ("system:masters",))
        with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as made:
            yield made


def of_webhook(objects: list[Any], name: str) -> list[Any]:
    return [item for item in objects if item["metadata"]["name"] == name]


def in_a_project(value: Any, project: str, driver: str) -> Any:
    """Return drakit's own manifests of the webhook, or a part of them, with the names of a project."""
    if isinstance(value, list):
        return [in_a_project(item, project, driver) for item in value]
    if isinstance(value, dict):
        if value.get("app.kubernetes.io/component") == "webhook":
            return {"app.kubernetes.io/name": f"{project}-webhook"}
        return {key: in_a_project(item, project, driver) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    exact = {"drakit": project, "drakit:0.1.0": f"{project}:0.1.0", "drakit-system": project, "drakit-webhook": f"{project}-webhook"}
    exact |= {"config.webhook.drakit.dev": f"config.{driver}", "parameters-for-our-drivers": "parameters-for-the-driver"}
    return exact.get(value, value.replace('in ["gpu.drakit.dev", "nic.drakit.dev"]', f'== "{driver}"'))


@pytest.mark.parametrize("name", ["hello", "everything"])
def test_a_project_has_the_manifests_of_drakits_webhook_with_its_own_names(name: str) -> None:
    project, driver = f"{name}-driver", manifests.EXAMPLES[name]
    objects = of_webhook(manifests.example_with_webhook(name), f"{project}-webhook")
    for item in objects:
        kube_schema.validate(item)
    wanted = {item["kind"]: in_a_project(item, project, driver) for item in manifests.rendered("daemonset/webhook")}
    assert {item["kind"]: item for item in objects} == wanted
    header = (manifests.ROOT / "examples" / name / "deploy" / "webhook" / "kustomization.yaml").read_text()
    assert f"subjectAltName=DNS:{project}-webhook.{project}.svc\n" in header
    assert f"kubectl -n {project} create secret tls {project}-webhook " in header


@pytest.mark.parametrize("name", ["hello", "everything"])
def test_a_projects_webhook_is_off_and_changes_nothing_else(name: str) -> None:
    with_webhook = manifests.example_with_webhook(name)
    hook = of_webhook(with_webhook, f"{name}-driver-webhook")
    assert manifests.example(name) == [item for item in with_webhook if item not in hook]
    (daemonset,) = [item for item in with_webhook if item["kind"] == "DaemonSet"]
    (deployment,) = [item for item in hook if item["kind"] == "Deployment"]
    images = [item["spec"]["template"]["spec"]["containers"][0]["image"] for item in (daemonset, deployment)]
    assert images[0] == images[1]
    assert not daemonset["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


REGION = "region.example.com"
PAGE = manifests.ROOT / "docs" / "howto" / "validate-at-admission.md"


@pytest.fixture
def regions(tmp_path: pathlib.Path) -> Iterator[client.ApiClient]:
    """A client of an API server that asks the driver of the page, as a process with the rights of the component ``webhook/pods``."""
    package = tmp_path / "region_driver"
    package.mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (package / "__main__.py").write_text(f"{code}\n\ndrakit.run(RegionDriver)\n")
    files = tls_files.TlsFiles(tmp_path)
    authority = base64.b64encode(files.authority_pem).decode()
    with apiserver.ApiServer(registry.Registry()) as server:
        objects = [
            item for item in manifests.example_with_webhook("hello", pods=True) if item["metadata"]["name"].endswith("-webhook-pods")
        ]
        for item in objects:
            if item["kind"] != CONFIGURATION:
                server.registry.create(next(one for one in resources.SERVED if one.kind == item["kind"]), item)
        account = "system:serviceaccount:hello-driver:hello-driver-webhook"
        token = server.issue_token(account, ("system:serviceaccounts", "system:authenticated"))
        server.write_kubeconfig(tmp_path / "kubeconfig", token=token)
        with webhook_process.WebhookProcess(files, "region_driver", tmp_path, KUBECONFIG=str(tmp_path / "kubeconfig")) as running:
            configurations = [item for item in manifests.example_with_webhook("hello", pods=True) if item["kind"] == CONFIGURATION]
            for configuration in copy.deepcopy(configurations):
                (hook,) = configuration["webhooks"]
                path = hook["clientConfig"]["service"]["path"]
                hook |= {"clientConfig": {"url": f"https://127.0.0.1:{running.port}{path}", "caBundle": authority}, "timeoutSeconds": 30}
                hook["matchConditions"][-1]["expression"] = hook["matchConditions"][-1]["expression"].replace("hello.example.com", REGION)
                server.registry.create(resources.WEBHOOKS, configuration)
            token = server.issue_token("tester", ("system:masters",))
            with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as made:
                yield made


def region_claim(name: str, count: int, bandwidth: int) -> dict[str, Any]:
    claim = p.holding(p.CLAIM, p.config(REGION, {"bandwidth": bandwidth}), name=name)
    claim["spec"]["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": REGION, "count": count}}]
    return claim


def test_the_driver_of_the_page_refuses_claims_and_pods_as_a_whole(regions: client.ApiClient) -> None:
    regions.create(resources.CLAIM, region_claim("one", 2, 5))
    regions.create(resources.CLAIM, region_claim("two", 1, 1))
    with pytest.raises(errors.InvalidError, match=re.escape("spec.devices.requests[0]: the requests need 15 tenths of one link")):
        regions.create(resources.CLAIM, region_claim("three", 3, 5))

    def pod(name: str, *claims: str) -> dict[str, Any]:
        container = {"name": "c", "image": "x", "resources": {"claims": [{"name": claim} for claim in claims]}}
        spec = {"containers": [container], "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}

    regions.create(resources.POD, pod("good", "one"))
    with pytest.raises(
        errors.InvalidError, match=re.escape('"pods.hello.example.com" denied the request: spec.containers[0].resources.claims[1]')
    ):
        regions.create(resources.POD, pod("bad", "one", "two"))


@pytest.mark.parametrize("name", ["hello", "everything"])
def test_reviews_of_pods_add_their_configuration_and_rights_alone(name: str) -> None:
    plain = {(item["kind"], item["metadata"]["name"]): item for item in manifests.example_with_webhook(name)}
    found = {(item["kind"], item["metadata"]["name"]): item for item in manifests.example_with_webhook(name, pods=True)}
    for item in found.values():
        kube_schema.validate(item)
    hook = f"{name}-driver-webhook"
    assert found.keys() - plain.keys() == {(kind, f"{hook}-pods") for kind in (CONFIGURATION, "ClusterRole", "ClusterRoleBinding")}
    changed = {key for key in plain if plain[key] != found[key]}
    assert changed == {("Deployment", hook), ("NetworkPolicy", hook)}
    assert found["Deployment", hook]["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    (rule,) = found["ClusterRole", f"{hook}-pods"]["rules"]
    assert rule["verbs"] == ["get"]
    (binding,) = found["ClusterRoleBinding", f"{hook}-pods"]["subjects"]
    assert ("ServiceAccount", binding["name"]) in plain
    (review,) = found[CONFIGURATION, f"{hook}-pods"]["webhooks"]
    assert (review["failurePolicy"], review["timeoutSeconds"]) == ("Ignore", 3)
    assert set(review["rules"][0]["resources"]) == {"pods"}
    assert f"{name}-driver" in review["namespaceSelector"]["matchExpressions"][0]["values"]


@pytest.mark.parametrize("kind", [p.CLAIM, p.TEMPLATE, p.CLASS])
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_objects_with_parameters_that_prepare_refuses_are_not_created(api: client.ApiClient, kind: str, version: str) -> None:
    resource = next(one for one in resources.SERVED if (one.kind, one.version) == (kind, version))
    namespace = "default" if resource.namespaced else ""

    def create(name: str, parameters: p.Json, driver: str = DRIVER) -> None:
        api.create(resource, p.holding(kind, p.config(driver, parameters), version=version, name=name), namespace=namespace)

    create("good", gpu(**LONG))
    create("of-another-driver", gpu(strategy="Luck"), "other.example.com")
    with pytest.raises(
        errors.InvalidError, match=re.escape(f"{p.PATHS[kind]}.opaque.parameters.sharing.timeSlicingConfig.interval: must be")
    ):
        create("bad", gpu(strategy="TimeSlicing", timeSlicingConfig={"interval": "InvalidInterval"}))
    with pytest.raises(errors.InvalidError, match="is not for the strategy SpacePartitioning"):
        create("bad", gpu(**{**LONG, "strategy": "SpacePartitioning"}))


def test_a_v1beta1_claim_is_judged_too(hook: tuple[webhook_process.WebhookProcess, tls_files.TlsFiles]) -> None:
    running, files = hook
    for sharing, allowed in ((LONG, True), ({"strategy": "Luck"}, False)):
        review = p.review(p.holding(p.CLAIM, p.config(DRIVER, gpu(**sharing)), version="v1beta1"))
        status, body = files.post(running.port, json.dumps(review).encode())
        assert (status, json.loads(body)["response"]["allowed"]) == (200, allowed)
