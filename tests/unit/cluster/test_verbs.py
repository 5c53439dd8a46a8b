"""The API's contract, held by the registry in process and by the client over HTTPS alike."""

import re

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NAMESPACE, NODE, POD, SLICE
from unit.cluster import samples

FINALIZER = "resource.kubernetes.io/delete-protection"


def meta(obj: Object, field: str) -> str:
    return json_types.text(obj, "metadata", field)


def test_a_created_object_gets_the_fields_that_the_server_sets(api: Api) -> None:
    given = samples.slice_()
    made = api.create(SLICE, given)
    assert (made["apiVersion"], made["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert re.fullmatch(r"[0-9a-f-]{36}", meta(made, "uid"))
    assert meta(made, "creationTimestamp").endswith("Z")
    assert json_types.number(made, "metadata", "generation") == 1
    assert "uid" not in json_types.mapping(given, "metadata")
    assert api.get(SLICE, "0-n1-aaaaa") == made


def test_a_generated_name_has_five_characters_after_at_most_58(api: Api) -> None:
    given = samples.slice_()
    given["metadata"] = {"generateName": "a" * 70}
    first, second = meta(api.create(SLICE, given), "name"), meta(api.create(SLICE, given), "name")
    assert re.fullmatch(r"a{58}[bcdfghjklmnpqrstvwxz2456789]{5}", first)
    assert first != second


def test_a_name_in_use_is_a_conflict(api: Api) -> None:
    api.create(SLICE, samples.slice_())
    with pytest.raises(errors.AlreadyExistsError) as refused:
        api.create(SLICE, samples.slice_())
    assert refused.value.details.kind == "resourceslices"


def test_objects_need_an_existing_namespace(api: Api) -> None:
    with pytest.raises(errors.NotFoundError, match='namespaces "nowhere" not found'):
        api.create(CLAIM, samples.claim(namespace="nowhere"))
    with pytest.raises(errors.BadRequestError):
        api.create(CLAIM, {"metadata": {"name": "c"}, "spec": {}})


def test_a_missing_object_is_not_found(api: Api) -> None:
    with pytest.raises(errors.NotFoundError) as refused:
        api.get(CLAIM, "none", "default")
    assert (refused.value.details.name, refused.value.details.group) == ("none", "resource.k8s.io")


def test_an_update_of_a_stale_version_conflicts_and_changes_nothing(api: Api) -> None:
    stale = api.create(CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
    fresh = api.update(CLASS, stale | {"spec": {"selectors": [{"cel": {"expression": "true"}}]}})
    with pytest.raises(errors.ConflictError, match="the object has been modified"):
        api.update(CLASS, stale)
    assert api.get(CLASS, "gpu") == fresh
    assert json_types.number(fresh, "metadata", "generation") == 2


def test_an_update_without_a_version_is_unconditional_but_the_uid_must_match(api: Api) -> None:
    made = api.create(SLICE, samples.slice_())
    assert api.update(SLICE, samples.slice_(count=2))["spec"] != made["spec"]
    wrong = samples.slice_()
    json_types.mapping(wrong, "metadata")["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(errors.ConflictError, match="UID in precondition"):
        api.update(SLICE, wrong)


def test_an_update_that_changes_nothing_stores_nothing(api: Api) -> None:
    made = api.create(SLICE, samples.slice_())
    assert meta(api.update(SLICE, made), "resourceVersion") == meta(made, "resourceVersion")


def test_status_and_the_rest_are_written_apart(api: Api) -> None:
    made = api.create(CLAIM, samples.allocated(samples.claim(), samples.result()))
    assert "status" not in made
    stored = api.update(CLAIM, samples.allocated(made, samples.result()) | {"spec": {}}, subresource="status")
    assert stored["spec"] == made["spec"]
    assert "status" in stored
    labelled = dict(stored)
    labelled["metadata"] = {**json_types.mapping(stored, "metadata"), "labels": {"a": "b"}}
    del labelled["status"]
    assert api.update(CLAIM, labelled)["status"] == stored["status"]


def test_nodes_register_with_their_status(api: Api) -> None:
    node = api.create(NODE, {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert json_types.text(node, "status", "conditions", 0, "status") == "True"


@pytest.mark.parametrize(
    "kind, patch",
    [
        (PatchKind.MERGE, {"metadata": {"labels": {"a": "1"}}}),
        (PatchKind.STRATEGIC, {"metadata": {"labels": {"a": "1"}}}),
        (PatchKind.JSON, [{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]),
    ],
)
def test_each_kind_of_patch_changes_the_object(api: Api, kind: PatchKind, patch: json_types.Json) -> None:
    api.create(CLAIM, samples.claim())
    assert json_types.text(api.patch(CLAIM, "c1", patch, namespace="default", kind=kind), "metadata", "labels", "a") == "1"


def test_a_patch_may_demand_a_version(api: Api) -> None:
    api.create(CLAIM, samples.claim())
    with pytest.raises(errors.ConflictError):
        api.patch(CLAIM, "c1", {"metadata": {"resourceVersion": "1"}}, namespace="default", kind=PatchKind.MERGE)


def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(api: Api) -> None:
    given = samples.claim()
    json_types.mapping(given, "metadata")["finalizers"] = [FINALIZER]
    api.create(CLAIM, given)
    held = api.delete(CLAIM, "c1", namespace="default")
    assert meta(held, "deletionTimestamp")
    more: Object = {"metadata": {"finalizers": [FINALIZER, "example.com/late"]}}
    with pytest.raises(errors.InvalidError, match="no new finalizers"):
        api.patch(CLAIM, "c1", more, namespace="default", kind=PatchKind.MERGE)
    api.patch(CLAIM, "c1", {"metadata": {"finalizers": None}}, namespace="default", kind=PatchKind.MERGE)
    with pytest.raises(errors.NotFoundError):
        api.get(CLAIM, "c1", "default")


def test_delete_keeps_its_preconditions(api: Api) -> None:
    made = api.create(SLICE, samples.slice_())
    with pytest.raises(errors.ConflictError):
        api.delete(SLICE, "0-n1-aaaaa", uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(errors.ConflictError):
        api.delete(SLICE, "0-n1-aaaaa", resource_version="1")
    gone = api.delete(SLICE, "0-n1-aaaaa", uid=meta(made, "uid"), resource_version=meta(made, "resourceVersion"))
    assert meta(gone, "uid") == meta(made, "uid")


def test_a_pod_on_a_node_waits_for_the_kubelet(api: Api) -> None:
    api.create(POD, samples.pod(node="n1"))
    marked = api.delete(POD, "p1", namespace="default")
    assert json_types.number(marked, "metadata", "deletionGracePeriodSeconds") == 30
    assert api.get(POD, "p1", "default") == marked
    api.delete(POD, "p1", namespace="default", grace_seconds=0)
    with pytest.raises(errors.NotFoundError):
        api.get(POD, "p1", "default")


def test_a_pod_without_a_node_is_deleted_at_once(api: Api) -> None:
    api.create(POD, samples.pod())
    api.delete(POD, "p1", namespace="default")
    assert api.list(POD, namespace="default").items == []


def test_a_pod_is_bound_once_and_otherwise_fixed(api: Api) -> None:
    api.create(POD, samples.pod())
    bound = api.patch(POD, "p1", {"spec": {"nodeName": "n1"}}, namespace="default", kind=PatchKind.MERGE)
    assert json_types.text(bound, "spec", "nodeName") == "n1"
    for change in ({"nodeName": "n2"}, {"restartPolicy": "Never"}):
        with pytest.raises(errors.InvalidError):
            api.patch(POD, "p1", {"spec": dict(change)}, namespace="default", kind=PatchKind.STRATEGIC)


def test_selectors_choose_by_fields_and_labels(api: Api) -> None:
    for index, node in enumerate(("n1", "n2")):
        given = samples.slice_(f"s{index}", nodeName=node)
        json_types.mapping(given, "metadata")["labels"] = {"at": node}
        api.create(SLICE, given)

    def names(**selectors: str) -> list[str]:
        return [meta(one, "name") for one in api.list(SLICE, **selectors).items]

    assert names(field_selector="spec.nodeName=n2,spec.driver=gpu.drakit.dev") == ["s1"]
    assert names(field_selector="metadata.name!=s1") == ["s0"]
    assert names(label_selector="at in (n1, n3)") == ["s0"]
    assert names(label_selector="at notin (n1),at") == ["s1"]
    assert names(label_selector="!at") == []
    with pytest.raises(errors.BadRequestError, match=re.escape("spec.pool.name cannot be selected")):
        names(field_selector="spec.pool.name=n1")


def test_a_collection_can_be_deleted_by_selector(api: Api) -> None:
    for index, node in enumerate(("n1", "n1", "n2")):
        api.create(SLICE, samples.slice_(f"s{index}", nodeName=node))
    assert len(api.delete_collection(SLICE, field_selector="spec.nodeName=n1").items) == 2
    assert [meta(one, "name") for one in api.list(SLICE).items] == ["s2"]


def test_a_deleted_namespace_waits_until_its_contents_are_deleted(api: Api) -> None:
    api.create(NAMESPACE, {"metadata": {"name": "team"}})
    given = samples.claim(namespace="team")
    json_types.mapping(given, "metadata")["finalizers"] = [FINALIZER]
    api.create(CLAIM, given)
    api.create(POD, samples.pod(namespace="team"))
    api.delete(NAMESPACE, "team")
    assert json_types.text(api.get(NAMESPACE, "team"), "status", "phase") == "Terminating"
    assert api.list(POD, namespace="team").items == []
    with pytest.raises(errors.ForbiddenError, match="is being terminated"):
        api.create(POD, samples.pod(namespace="team"))
    api.patch(CLAIM, "c1", {"metadata": {"finalizers": []}}, namespace="team", kind=PatchKind.MERGE)
    with pytest.raises(errors.NotFoundError):
        api.get(NAMESPACE, "team")


def test_an_invalid_object_names_every_wrong_field(api: Api) -> None:
    bad = samples.slice_(pool={"name": "n1", "generation": -1, "resourceSliceCount": 0}, allNodes=True)
    with pytest.raises(errors.InvalidError) as refused:
        api.create(SLICE, bad)
    found = {(cause.field, cause.reason) for cause in refused.value.details.causes}
    assert ("spec.pool.generation", "FieldValueInvalid") in found
    assert ("spec.pool.resourceSliceCount", "FieldValueInvalid") in found
    assert ("spec", "FieldValueInvalid") in found
    assert refused.value.details.kind == "ResourceSlice"
    assert api.list(SLICE).items == []


def test_a_wrong_type_is_a_bad_request(api: Api) -> None:
    with pytest.raises(errors.BadRequestError, match=re.escape("spec.devices[0].name: want a string")):
        api.create(SLICE, samples.slice_(count=0) | {"spec": {"devices": [{"name": 5}]}})
