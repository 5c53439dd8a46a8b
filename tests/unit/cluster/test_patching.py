"""Patches by the letter of their specifications."""

import pytest

from drakit_cluster.api import patching
from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.resources import CLAIM, POD
from drakit_cluster.objects.schema import table


@pytest.mark.parametrize(
    "target, patch, wanted",
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, None, None),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_follow_rfc_7396(target: Json, patch: Json, wanted: Json) -> None:
    assert patching.merge(target, patch) == wanted


@pytest.mark.parametrize(
    "target, operation, wanted",
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz", "value": "qux"}, {"foo": "bar", "baz": "qux"}),
        ({"foo": ["a", "c"]}, {"op": "add", "path": "/foo/1", "value": "b"}, {"foo": ["a", "b", "c"]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/-", "value": "b"}, {"foo": ["a", "b"]}),
        ({"foo": ["a", "b"]}, {"op": "remove", "path": "/foo/0"}, {"foo": ["b"]}),
        ({"foo": 1}, {"op": "replace", "path": "/foo", "value": None}, {"foo": None}),
        ({"a": {"x": 1}, "b": {}}, {"op": "move", "from": "/a/x", "path": "/b/y"}, {"a": {}, "b": {"y": 1}}),
        ({"a": {"x": 1}}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a/b": {"m~n": 8}}, {"op": "replace", "path": "/a~1b/m~0n", "value": 9}, {"a/b": {"m~n": 9}}),
        ({"foo": 1}, {"op": "test", "path": "/foo", "value": 1}, {"foo": 1}),
    ],
)
def test_json_patches_follow_rfc_6902(target: Json, operation: Json, wanted: Json) -> None:
    assert patching.json_patch(target, [operation]) == wanted


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "grow", "path": "/a"},
        {},
        7,
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused(operation: Json) -> None:
    with pytest.raises(errors.BadRequestError):
        patching.json_patch({"list": [1], "a": {}}, [operation])


def test_a_failed_test_is_invalid_and_earlier_operations_do_not_show() -> None:
    target: Json = {"a": 1}
    with pytest.raises(errors.InvalidError):
        patching.json_patch(target, [{"op": "add", "path": "/b", "value": 2}, {"op": "test", "path": "/a", "value": 3}])
    assert target == {"a": 1}


def test_strategic_patches_merge_lists_by_their_key() -> None:
    shape = table.shape_of(POD)
    target: Json = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    patch: Json = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}],
        }
    }
    assert patching.strategic(shape, target, patch) == {"spec": {"containers": [{"name": "a", "image": "2"}]}}


def test_strategic_patches_of_claims_merge_reservations_and_replace_devices() -> None:
    shape = table.shape_of(CLAIM)
    target: Json = {"status": {"reservedFor": [{"uid": "1", "name": "p"}], "devices": [{"device": "a"}]}}
    patch: Json = {"status": {"reservedFor": [{"uid": "2", "name": "q"}], "devices": [{"device": "b"}]}}
    wanted = {"status": {"reservedFor": [{"uid": "1", "name": "p"}, {"uid": "2", "name": "q"}], "devices": [{"device": "b"}]}}
    assert patching.strategic(shape, target, patch) == wanted


def test_strategic_directives_are_obeyed() -> None:
    shape = table.shape_of(POD)
    kept: Json = {"metadata": {"finalizers": ["a", "b"]}}
    assert patching.strategic(shape, kept, {"metadata": {"finalizers": ["c"]}}) == {"metadata": {"finalizers": ["a", "b", "c"]}}
    removal: Json = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert patching.strategic(shape, kept, removal) == {"metadata": {"finalizers": ["b"]}}
    assert patching.strategic(shape, {"metadata": {"x": "1"}}, {"metadata": {"$patch": "replace", "y": "2"}}) == {"metadata": {"y": "2"}}
    assert patching.strategic(shape, {"a": 1, "b": 2}, {"$retainKeys": ["b"], "b": 3}) == {"b": 3}
