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

CONFIGURATION = pathlib.Path(__file__).parents[2] / "daemonset" / "webhook" / "configuration.yaml"
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
    flags = {"webhook.address": "127.0.0.1:0", "webhook.certificate": files.chain, "webhook.key": files.key}
    measured = metrics.Metrics()
    hook = webhook.Webhook(settings.load(flags, environ={}), measured)
    hook.start()
    memory = registry.Registry()
    configuration: Any = yaml.safe_load(CONFIGURATION.read_text("utf-8"))
    ca = base64.b64encode(files.authority_pem).decode()
    configuration["webhooks"][0]["clientConfig"] = {"url": f"https://{hook.address}{webhook.PATH}", "caBundle": ca}
    memory.create(resources.WEBHOOKS, configuration)
    with apiserver.ApiServer(memory) as server:
        token = server.issue_token("tester", ("system:masters",))
        with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as api:
            yield Guarded(memory, api, hook, measured)
    hook.stop()


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
