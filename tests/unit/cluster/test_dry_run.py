"""A dry run answers what a write would, and stores nothing; options that make no sense are refused."""

import pytest

from drakit_cluster.api import registry
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NAMESPACE, POD, SLICE
from unit.cluster import samples

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def ask(api: client.ApiClient, method: str, path: str, body: Json = None, media: str = "application/json", **parameters: str) -> Object:
    return api._object(method, path, {"dryRun": "All", **parameters}, body=body, media_type=media)


def test_a_create_answers_with_defaults_and_stores_nothing(https: client.ApiClient, memory: registry.Registry) -> None:
    version = memory.store.version
    found = ask(https, "POST", CLAIM.path("default"), samples.claim())
    assert json_types.at(found, "spec", "devices", "requests", 0, "exactly", "allocationMode") == "ExactCount"
    assert json_types.text(found, "metadata", "uid")
    assert "resourceVersion" not in json_types.mapping(found, "metadata")
    made = ask(https, "POST", NAMESPACE.path(), {"metadata": {"name": "n"}})
    assert json_types.text(made, "status", "phase") == "Active"
    assert (memory.list(CLAIM).items, memory.store.version) == ([], version)


def test_updates_patches_and_applies_change_nothing(https: client.ApiClient, memory: registry.Registry) -> None:
    made = memory.create(SLICE, samples.slice_())
    path = SLICE.path(name="0-n1-aaaaa")
    labelled: Object = {"metadata": {"labels": {"a": "b"}}}
    writes: list[tuple[str, Object, str]] = [
        ("PUT", made | {"metadata": json_types.mapping(made, "metadata") | {"labels": {"a": "b"}}}, "application/json"),
        ("PATCH", labelled, MERGE),
        ("PATCH", {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"labels": {"a": "b"}}}, APPLY),
    ]
    for method, body, media in writes:
        parameters = {"fieldManager": "me"} if media == APPLY else {}
        found = ask(https, method, path, body, media, **parameters)
        assert json_types.mapping(found, "metadata", "labels") == {"a": "b"}
        assert memory.get(SLICE, "0-n1-aaaaa") == made


def test_deletes_by_query_or_body_delete_nothing(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    memory.create(POD, samples.pod(node="n1"))
    assert json_types.text(ask(https, "DELETE", CLASS.path(name="x")), "metadata", "name") == "x"
    body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], "gracePeriodSeconds": 7}
    answer = https._object("DELETE", POD.path("default", "p1"), body=body)
    assert json_types.number(answer, "metadata", "deletionGracePeriodSeconds") == 7
    assert len(json_types.items(ask(https, "DELETE", POD.path("default")), "items")) == 1
    ask(https, "DELETE", NAMESPACE.path(name="default"))
    assert "deletionTimestamp" not in json_types.mapping(memory.get(POD, "p1", "default"), "metadata")
    assert memory.get(CLASS, "x")


def test_a_dry_run_is_refused_as_the_write_would_be(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(CLASS, {"metadata": {"name": "x"}, "spec": {}})
    with pytest.raises(errors.AlreadyExistsError):
        ask(https, "POST", CLASS.path(), {"metadata": {"name": "x"}, "spec": {}})
    with pytest.raises(errors.InvalidError, match="spec"):
        ask(https, "POST", SLICE.path(), samples.slice_(nodeName=None))
    with pytest.raises(errors.NotFoundError):
        ask(https, "DELETE", CLASS.path(name="y"))


@pytest.mark.parametrize(
    "method, parameters, message",
    [
        (
            "POST",
            {"dryRun": "Some"},
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
        ),
        ("POST", {"fieldValidation": "Loose"}, "fieldValidation: Unsupported value"),
        ("POST", {"fieldManager": "x" * 129}, "fieldManager: Too long"),
        ("PUT", {"fieldManager": "\x00"}, 'UpdateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value'),
        ("PATCH", {"force": "true"}, "force: Forbidden: may not be specified for non-apply patch"),
        ("DELETE", {"dryRun": "Some"}, 'DeleteOptions.meta.k8s.io "" is invalid: dryRun'),
        ("DELETE", {"propagationPolicy": "Later"}, "propagationPolicy: Unsupported value"),
    ],
)
def test_invalid_options_are_named(https: client.ApiClient, method: str, parameters: dict[str, str], message: str) -> None:
    path = CLASS.path() if method == "POST" else CLASS.path(name="x")
    with pytest.raises(errors.InvalidError) as refused:
        ask(https, method, path, {"metadata": {"name": "x"}, "spec": {}}, MERGE if method == "PATCH" else "application/json", **parameters)
    assert message in refused.value.message
