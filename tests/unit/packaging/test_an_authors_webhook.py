"""The webhook of an author's driver: the manifests that ``drakit new`` writes, and ``examples/everything`` as a process that an API server asks."""

import base64
import copy
import json
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
