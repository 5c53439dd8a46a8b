"""Other versions of resource.k8s.io, and the kinds that only they have."""

import contextlib
import json
from dataclasses import replace

import httpx
import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLASS, POOL_STATUS_REQUEST, SLICE, TAINT_RULE
from unit.cluster import samples

BETA = replace(SLICE, version="v1beta2")
BETA_RULE = replace(TAINT_RULE, version="v1beta2")


def rule(name: str = "r", effect: str = "NoExecute") -> Object:
    taint: Object = {"key": "example.com/broken", "effect": effect}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": {"driver": "gpu.drakit.dev"}, "taint": taint}}


def test_an_object_written_in_one_version_is_read_in_the_other(https: client.ApiClient, raw: httpx.Client) -> None:
    made = https.create(BETA, samples.slice_())
    assert made["apiVersion"] == "resource.k8s.io/v1beta2"
    stored = https.get(SLICE, "0-n1-aaaaa")
    assert stored | {"apiVersion": "resource.k8s.io/v1beta2"} == made
    assert https.list(BETA).items == [made]
    listed = raw.get(BETA.path()).json()
    assert (listed["apiVersion"], listed["kind"]) == ("resource.k8s.io/v1beta2", "ResourceSliceList")
    assert "apiVersion" not in listed["items"][0]
    renewed = https.update(BETA, made)
    assert renewed == made
    patched = https.patch(BETA, "0-n1-aaaaa", {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE)
    assert patched["apiVersion"] == "resource.k8s.io/v1beta2"
    body: Object = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "ResourceSlice", "metadata": {"labels": {"c": "d"}}}
    applied = https.patch(BETA, "0-n1-aaaaa", body, kind=PatchKind.APPLY, manager="me")
    assert json_types.mapping(applied, "metadata", "labels") == {"a": "b", "c": "d"}
    assert https.delete(BETA, "0-n1-aaaaa")["apiVersion"] == "resource.k8s.io/v1beta2"


def test_a_watch_sends_objects_in_the_requested_version(server: apiserver.ApiServer, memory: registry.Registry) -> None:
    with apiserver.ApiServer(memory, bookmark_every=0.05) as quick:
        token = quick.issue_token("tester", ("system:masters",))
        with (
            client.ApiClient(server=quick.url, ca_pem=quick.ca_pem, token=token) as api,
            contextlib.closing(api.watch(BETA, since="", bookmarks=True)) as watch,
        ):
            memory.create(SLICE, samples.slice_())
            events = [next(watch), next(watch)]
    assert [str(one.type) for one in events] == ["ADDED", "BOOKMARK"] or str(events[0].type) == "BOOKMARK"
    assert {one.object["apiVersion"] for one in events} == {"resource.k8s.io/v1beta2"}
    assert server.url


def test_a_body_of_another_version_than_its_url_is_refused(raw: httpx.Client) -> None:
    body = samples.slice_() | {"apiVersion": "resource.k8s.io/v1"}
    answer = raw.post(BETA.path(), content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "resource.k8s.io/v1beta2" in answer.json()["message"]


def test_tables_have_the_same_columns_in_every_version(raw: httpx.Client, memory: registry.Registry) -> None:
    memory.create(SLICE, samples.slice_())
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    tables = [raw.get(one.path(), headers=accept).json()["columnDefinitions"] for one in (SLICE, BETA)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("path", ["", "/resourceslices", "/namespaces/default/resourceclaims/c1"])
def test_v1beta1_is_refused_with_the_version_to_use(raw: httpx.Client, path: str) -> None:
    answer = raw.get(f"/apis/resource.k8s.io/v1beta1{path}")
    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")
    assert "use resource.k8s.io/v1" in answer.json()["message"]


def test_taint_rules_are_in_a_beta_version_too(https: client.ApiClient) -> None:
    made = https.create(BETA_RULE, rule())
    assert json_types.text(made, "spec", "taint", "timeAdded")
    assert https.get(TAINT_RULE, "r")["apiVersion"] == "resource.k8s.io/v1"
    status: Object = {"status": {"conditions": samples.ready()}}
    written = https.patch(TAINT_RULE, "r", status, kind=PatchKind.MERGE, subresource="status")
    assert json_types.items(written, "status", "conditions") == samples.ready()


def test_a_taint_with_another_effect_gets_a_new_time(memory: registry.Registry) -> None:
    past = "2020-01-01T00:00:00Z"
    body = rule(effect="NoSchedule")
    json_types.mapping(body, "spec", "taint")["timeAdded"] = past
    made = memory.create(TAINT_RULE, body)
    assert json_types.text(made, "spec", "taint", "timeAdded") == past
    json_types.mapping(made, "spec", "taint")["effect"] = "NoExecute"
    assert json_types.text(memory.update(TAINT_RULE, made), "spec", "taint", "timeAdded") > past


def test_the_status_of_a_pool_status_request_is_written_apart(https: client.ApiClient) -> None:
    made = https.create(POOL_STATUS_REQUEST, {"metadata": {"name": "q"}, "spec": {"driver": "gpu.drakit.dev"}, "status": {"poolCount": 9}})
    assert json_types.number(made, "spec", "limit") == 100
    assert "status" not in made
    answer: Object = {"status": {"poolCount": 0, "conditions": []}}
    assert json_types.at(https.update(POOL_STATUS_REQUEST, made | answer, subresource="status"), "status", "poolCount") == 0


def test_one_watch_sees_writes_of_every_version(https: client.ApiClient, memory: registry.Registry) -> None:
    beta_class = replace(CLASS, version="v1beta2")
    with contextlib.closing(memory.watch(CLASS, since="")) as watch:
        https.create(beta_class, {"metadata": {"name": "gpu"}, "spec": {}})
        assert next(watch).object["apiVersion"] == "resource.k8s.io/v1"
