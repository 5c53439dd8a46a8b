"""DaemonSet, Deployment, Lease, Secret, ConfigMap, ServiceAccount: stored with Kubernetes' defaults and rules."""

import base64

import pytest

from drakit_cluster.api import registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CONFIGMAP, DAEMON_SET, DEPLOYMENT, LEASE, NAMESPACE, SECRET, Resource


def workload(**spec: Json) -> Object:
    labels: Object = {"app": "x"}
    template: Object = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}}
    body: Object = {"selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "x", "namespace": "default"}, "spec": body | spec}


@pytest.mark.parametrize("resource", [DAEMON_SET, DEPLOYMENT])
def test_a_workload_counts_its_generations_and_keeps_its_status_apart(api: Api, resource: Resource) -> None:
    made = api.create(resource, workload() | {"status": {"numberReady": 5}})
    assert json_types.number(made, "metadata", "generation") == 1
    assert "status" not in made
    image: Json = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x:2"}]}}}}
    changed = api.patch(resource, "x", image, namespace="default", kind=PatchKind.STRATEGIC)
    assert json_types.items(changed, "spec", "template", "spec", "containers") == [{"name": "main", "image": "x:2"}]
    status: Json = {"status": {"observedGeneration": 2}}
    written = api.patch(resource, "x", status, namespace="default", kind=PatchKind.MERGE, subresource="status")
    assert json_types.number(written, "metadata", "generation") == json_types.number(written, "status", "observedGeneration") == 2


def test_a_daemon_set_rolls_one_pod_at_a_time_unless_it_says_otherwise(memory: registry.Registry) -> None:
    made = memory.create(DAEMON_SET, workload())
    assert json_types.mapping(made, "spec", "updateStrategy") == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    surge = workload(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    again = memory.create(DAEMON_SET, surge | {"metadata": {"name": "y", "namespace": "default"}})
    assert json_types.mapping(again, "spec", "updateStrategy", "rollingUpdate") == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize(
    "spec, field",
    [
        ({"selector": {}}, "spec.selector"),
        ({"selector": {"matchLabels": {"app": "other"}}}, "spec.template.metadata.labels"),
        ({"template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [], "restartPolicy": "Never"}}}, "spec.template.spec"),
    ],
)
def test_an_invalid_workload_is_refused(memory: registry.Registry, spec: Object, field: str) -> None:
    with pytest.raises(errors.InvalidError) as refused:
        memory.create(DAEMON_SET, workload(**spec))
    assert any(cause.field.startswith(field) for cause in refused.value.details.causes)


def test_the_selector_of_a_workload_is_immutable(memory: registry.Registry) -> None:
    made = memory.create(DEPLOYMENT, workload())
    json_types.mapping(made, "spec", "selector", "matchLabels")["more"] = "yes"
    json_types.mapping(made, "spec", "template", "metadata", "labels")["more"] = "yes"
    with pytest.raises(errors.InvalidError, match=r"spec.selector: Invalid value: .*field is immutable"):
        memory.update(DEPLOYMENT, made)


def test_a_secret_keeps_its_text_as_data(api: Api) -> None:
    made = api.create(SECRET, {"metadata": {"name": "s"}, "stringData": {"a": "ü"}, "data": {"b": "Yg=="}}, namespace="default")
    assert made["data"] == {"a": base64.b64encode("ü".encode()).decode(), "b": "Yg=="}
    assert (made["type"], "stringData" in made) == ("Opaque", False)


def test_a_lease_is_renewed_by_one_holder_at_a_time(api: Api) -> None:
    spec: Object = {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
    made = api.create(LEASE, {"metadata": {"name": "l"}, "spec": spec}, namespace="default")
    renewed = api.update(LEASE, made | {"spec": spec | {"renewTime": "2026-01-01T00:00:10.000000Z"}})
    assert json_types.text(renewed, "spec", "renewTime") == "2026-01-01T00:00:10.000000Z"
    with pytest.raises(errors.ConflictError):
        api.update(LEASE, made | {"spec": spec | {"holderIdentity": "b"}})


def test_deleting_a_namespace_deletes_these_kinds(memory: registry.Registry) -> None:
    memory.create(NAMESPACE, {"metadata": {"name": "short"}})
    for resource in (SECRET, CONFIGMAP):
        memory.create(resource, {"metadata": {"name": "x"}}, namespace="short")
    memory.create(DAEMON_SET, workload() | {"metadata": {"name": "x", "namespace": "short"}})
    memory.delete(NAMESPACE, "short")
    assert not any(memory.list(resource, namespace="short").items for resource in (SECRET, CONFIGMAP, DAEMON_SET))
