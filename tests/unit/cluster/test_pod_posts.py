"""What is posted to a pod, the scale of a Deployment, deletions that orphan, and the service account that every pod has."""

import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import DEPLOYMENT, NAMESPACE, NODE, POD, SERVICEACCOUNT
from unit.cluster import samples
from unit.cluster.test_roles import grant, rule

EVICTION = POD.path("default", "p1", "eviction")
BINDING = POD.path("default", "p1", "binding")
SCALE = DEPLOYMENT.path("default", "d", "scale")


def post(api: client.ApiClient, path: str, body: Json, **parameters: str) -> Object:
    return api._object("POST", path, parameters, body=body)


def eviction(**options: Json) -> Object:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1"}, "deleteOptions": {**options}}


def test_an_eviction_deletes_a_pod_with_its_grace(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(POD, samples.pod(node="n1"))
    assert post(https, EVICTION, eviction(), dryRun="All")["code"] == 201
    assert "deletionTimestamp" not in json_types.mapping(memory.get(POD, "p1", "default"), "metadata")
    assert post(https, EVICTION, eviction(gracePeriodSeconds=5)) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    assert json_types.number(memory.get(POD, "p1", "default"), "metadata", "deletionGracePeriodSeconds") == 5
    with pytest.raises(errors.ConflictError):
        post(https, EVICTION, eviction(preconditions={"uid": "another"}))


def test_a_kubelet_evicts_its_own_pods_and_others_need_the_right(memory: registry.Registry, guarded: apiserver.ApiServer) -> None:
    memory.create(NODE, {"metadata": {"name": "n1"}})
    memory.create(POD, samples.pod(node="n1"))
    tokens = {name: guarded.issue_node_token(name) for name in ("n1", "n2")} | {"user": guarded.issue_token("user")}
    grant(memory, "user", rule("create", "pods", group=""))

    def evict(who: str) -> Object:
        with client.ApiClient(server=guarded.url, ca_pem=guarded.ca_pem, token=tokens[who]) as api:
            return post(api, EVICTION, eviction())

    for who in ("n2", "user"):
        with pytest.raises(errors.ForbiddenError, match="pods/eviction"):
            evict(who)
    assert evict("n1")


def test_a_binding_gives_a_pod_its_node_once(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(POD, samples.pod())
    target: Object = {"target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
    with pytest.raises(errors.InvalidError, match=r"metadata\.uid"):
        post(https, BINDING, target | {"metadata": {"name": "p1", "uid": "another"}})
    with pytest.raises(errors.InvalidError, match=r"target\.name: Required value"):
        post(https, BINDING, {"metadata": {"name": "p1"}})
    post(https, BINDING, target | {"metadata": {"name": "p1"}})
    assert json_types.text(memory.get(POD, "p1", "default"), "spec", "nodeName") == "n1"
    with pytest.raises(errors.ConflictError, match="pod p1 is already assigned to node n1"):
        post(https, BINDING, target | {"metadata": {"name": "p1"}})


def deployment(replicas: int = 1) -> Object:
    labels: Object = {"app": "d"}
    template: Object = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec: Object = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "d", "namespace": "default"}, "spec": spec}


def test_a_deployment_is_scaled_by_its_scale(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(DEPLOYMENT, deployment())
    scale = https._object("GET", SCALE)
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 1})
    assert json_types.text(scale, "status", "selector") == "app=d"
    written = https._object("PUT", SCALE, body=scale | {"spec": {"replicas": 3}})
    assert written["spec"] == {"replicas": 3}
    with pytest.raises(errors.ConflictError):
        https._object("PUT", SCALE, body=scale | {"spec": {"replicas": 4}})
    https._object("PATCH", SCALE, body={"spec": {"replicas": 0}}, media_type=PatchKind.MERGE.value)
    assert json_types.number(memory.get(DEPLOYMENT, "d", "default"), "spec", "replicas") == 0
    refused: list[tuple[Json, type[errors.ApiError]]] = [
        ({"spec": {"replicas": -1}}, errors.InvalidError),
        ({"spec": {}}, errors.BadRequestError),
    ]
    for body, kind in refused:
        with pytest.raises(kind, match=r"spec\.replicas"):
            https._object("PATCH", SCALE, body=body, media_type=PatchKind.MERGE.value)


def test_an_orphaning_delete_leaves_dependents_without_an_owner(https: client.ApiClient, memory: registry.Registry) -> None:
    uid = json_types.text(memory.create(DEPLOYMENT, deployment()), "metadata", "uid")
    other: Object = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    owned = samples.pod()
    own: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": uid}
    json_types.mapping(owned, "metadata")["ownerReferences"] = [own, other]
    memory.create(POD, owned)
    https._object("DELETE", DEPLOYMENT.path("default", "d"), body={"propagationPolicy": "Orphan"})
    assert json_types.items(memory.get(POD, "p1", "default"), "metadata", "ownerReferences") == [other]


def test_every_namespace_has_a_service_account_and_pods_run_as_one_that_exists(memory: registry.Registry) -> None:
    memory.create(NAMESPACE, {"metadata": {"name": "team"}})
    assert memory.get(SERVICEACCOUNT, "default", "team")
    assert json_types.text(memory.create(POD, samples.pod(namespace="team")), "spec", "serviceAccountName") == "default"
    stranger = samples.pod("p2")
    json_types.mapping(stranger, "spec")["serviceAccountName"] = "nobody"
    with pytest.raises(errors.ForbiddenError) as refused:
        memory.create(POD, stranger)
    why = 'error looking up service account default/nobody: serviceaccount "nobody" not found'
    assert refused.value.message == f'pods "p2" is forbidden: {why}'
    memory.delete(POD, "p1", namespace="team")
    memory.delete(NAMESPACE, "team")
    assert "team" not in {json_types.text(one, "metadata", "name") for one in memory.list(NAMESPACE).items}
