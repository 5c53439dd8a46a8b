"""The official Python client, with its typed models, reads every kind of a cluster in which pods run."""

import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import config
from kubernetes import watch as watching

from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import SLICE, Resource
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

WATCH: Any = watching.Watch  # The library has no types.
MADE = {"ResourceSlice", "ResourceClaim", "DeviceClass", "Pod", "Node", "Namespace", "Event"}
"""Kinds that the running cluster has already."""
UNWATCHED = {("ResourceClaim", "v1")}
"""The client's watch looks for a model V1ResourceClaim, which it has under the name ResourceV1ResourceClaim."""
SELECTOR: Object = {"matchLabels": {"app": "a"}}
WORKLOAD: Object = {
    "selector": SELECTOR,
    "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}},
}
HOOK: Object = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "rules": [{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["x"]}],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "failurePolicy": "Ignore",
}
ROLE_REF: Object = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
SUBJECTS: list[Json] = [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}]
RULES: list[Json] = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
POLICY: Object = {
    "matchConstraints": {"resourceRules": HOOK["rules"]},
    "validations": [{"expression": "true"}],
}
JOB_SPEC: Object = {"template": {"spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}}}
BODIES: dict[str, Object] = {
    "Secret": {"stringData": {"a": "b"}},
    "ConfigMap": {"data": {"a": "b"}},
    "PodTemplate": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
    "ServiceAccount": {},
    "ResourceClaimTemplate": {"spec": {"spec": objects.claim_spec()}},
    "DeviceTaintRule": {"spec": {"deviceSelector": {"pool": "x"}, "taint": {"key": "example.com/a", "effect": "NoSchedule"}}},
    "ResourcePoolStatusRequest": {"spec": {"driver": "gpu.example.com"}},
    "PodGroup": {"spec": {"schedulingPolicy": {"basic": {}}}},
    "DaemonSet": {"spec": WORKLOAD},
    "Deployment": {"spec": WORKLOAD | {"replicas": 1}},
    "ReplicaSet": {"spec": WORKLOAD | {"replicas": 1}},
    "StatefulSet": {"spec": WORKLOAD | {"replicas": 1, "serviceName": "a"}},
    "ControllerRevision": {"data": {"a": "b"}, "revision": 1},
    "Job": {"spec": JOB_SPEC},
    "CronJob": {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB_SPEC}}},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "Lease": {"spec": {"holderIdentity": "me"}},
    "Role": {"rules": RULES},
    "RoleBinding": {"roleRef": ROLE_REF, "subjects": SUBJECTS},
    "ClusterRole": {"rules": RULES},
    "ClusterRoleBinding": {"roleRef": ROLE_REF, "subjects": SUBJECTS},
    "ValidatingAdmissionPolicy": {"spec": POLICY},
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "a", "validationActions": ["Deny"]}},
    "ValidatingWebhookConfiguration": {"webhooks": [HOOK]},
}
"""What is created through the client, by kind; without apiVersion, kind and metadata."""
KINDS = {
    f"{one.kind}-{one.version}": one
    for one in resources.SERVED
    if one.verbs == resources.STORED_VERBS and (one.kind, one.version) != ("PodGroup", "v1alpha2")
}
"""The client of 1.37 has no model of the PodGroup of 1.36."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, https=True).start()
    running.plugin()
    running.api.create(SLICE, objects.resource_slice(objects.device("gpu-0"), objects.nic("nic-0")))
    running.api.create(resources.CLAIM, objects.claim("c"))
    running.run(objects.pod("p", claim="c"))
    running.until(lambda: running.events("Scheduled"), "an event")
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def connection(cluster: QuickCluster) -> Iterator[Any]:
    with config.new_client_from_config(str(cluster.cluster.kubeconfig)) as connected:
        yield connected
        connected.rest_client.pool_manager.clear()


class Typed:
    """The client's functions for one kind."""

    def __init__(self, connection: Any, kind: Resource) -> None:
        group = "".join(part.title() for part in kind.group.removesuffix(".k8s.io").split(".")) or "Core"
        self._api = getattr(official, f"{group}{kind.version[0].upper()}{kind.version[1:]}Api")(connection)
        self._kind, self._name = kind, re.sub(r"(?<!^)(?=[A-Z])", "_", kind.kind).lower()
        self._scope = "_namespaced" if kind.namespaced else ""

    @property
    def lister(self) -> Any:
        return getattr(self._api, f"list_{self._name}_for_all_namespaces" if self._kind.namespaced else f"list_{self._name}")

    def create(self, body: Object) -> Any:
        head: Object = {"apiVersion": self._kind.api_version, "kind": self._kind.kind, "metadata": {"name": "a"}}
        return getattr(self._api, f"create{self._scope}_{self._name}")(*self._where, head | body)

    def read(self, name: str, namespace: str) -> Any:
        return getattr(self._api, f"read{self._scope}_{self._name}")(name, *([namespace] if self._kind.namespaced else []))

    @property
    def _where(self) -> list[str]:
        return ["default"] if self._kind.namespaced else []


@pytest.mark.parametrize("name", KINDS)
def test_the_typed_client_creates_lists_reads_and_watches_every_kind(connection: Any, name: str) -> None:
    kind = KINDS[name]
    typed = Typed(connection, kind)
    if kind.kind not in MADE:
        try:
            assert typed.create(BODIES[kind.kind]).metadata.name == "a"
        except official.ApiException as error:
            assert error.status == 409  # noqa: PT017 -- another version of the kind has made it.
    listed = typed.lister()
    assert listed.items, "there is one of every kind"
    for one in listed.items:
        found = typed.read(one.metadata.name, one.metadata.namespace)
        assert (found.metadata.uid, type(found)) == (one.metadata.uid, type(one))
    if (kind.kind, kind.version) in UNWATCHED:
        return
    watcher, seen = WATCH(), set()
    for event in watcher.stream(typed.lister, timeout_seconds=10):
        assert isinstance(event["object"], type(listed.items[0]))
        seen.add(event["object"].metadata.uid)
        if seen >= {one.metadata.uid for one in listed.items}:
            watcher.stop()


def test_a_node_reports_the_system_of_this_machine(connection: Any) -> None:
    [node] = official.CoreV1Api(connection).list_node().items
    info, system = node.status.node_info, os.uname()
    assert (info.operating_system, info.kernel_version) == ("linux", system.release)
    assert info.boot_id == pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert info.container_runtime_version == "drakit://pretend"
    assert info.kubelet_version == official.VersionApi(connection).get_code().git_version
