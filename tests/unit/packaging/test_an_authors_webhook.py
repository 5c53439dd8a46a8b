"""The webhook of an author's driver: ``examples/everything`` as a process, asked by the local API server as its manifests say."""

import base64
import copy
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.client import client
from drakit_cluster.objects import errors, resources
from fakes import manifests, tls_files, webhook_process
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
    rendered = manifests.rendered(f"{FOLDER}/deploy/webhook")
    return copy.deepcopy(next(item for item in rendered if item["kind"] == CONFIGURATION))


@pytest.fixture
def hook(tmp_path: pathlib.Path) -> Iterator[tuple[webhook_process.WebhookProcess, tls_files.TlsFiles]]:
    files = tls_files.TlsFiles(tmp_path)
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
        token = server.issue_token("tester")
        with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as made:
            yield made


def test_the_manifests_match_the_schema_and_name_one_service(configuration: Any) -> None:
    objects = manifests.rendered(f"{FOLDER}/deploy/webhook")
    for item in objects:
        kubernetes_validate.validate(item, "1.36", strict=True)
    (service,) = [item["metadata"] for item in objects if item["kind"] == "Service"]
    (hook,) = configuration["webhooks"]
    assert (hook["clientConfig"]["service"]["name"], hook["clientConfig"]["service"]["namespace"]) == (
        service["name"],
        service["namespace"],
    )
    assert f'"{DRIVER}"' in hook["matchConditions"][-1]["expression"]
    header = (manifests.ROOT / FOLDER / "deploy" / "webhook" / "kustomization.yaml").read_text()
    assert f"{service['name']}.{service['namespace']}.svc" in header
    assert {item["metadata"]["name"] for item in objects} == {service["name"]}
    (pod,) = [item["spec"]["template"]["spec"] for item in objects if item["kind"] == "Deployment"]
    assert pod["volumes"][0]["secret"]["secretName"] in header


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
