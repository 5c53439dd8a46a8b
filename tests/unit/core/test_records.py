"""What a driver remembers is JSON, frozen all the way down."""

import pathlib

import pytest

from drakit.core import records


def test_a_record_survives_freezing_and_thawing() -> None:
    value = {"a": [1, 2.5, {"b": None}], "c": "text", "d": True}
    assert records.thaw(records.freeze_record(value)) == value


def test_a_frozen_record_cannot_change() -> None:
    inner = {"b": [1]}
    frozen = records.freeze_record({"a": inner})
    inner["b"].append(2)
    assert frozen == {"a": {"b": (1,)}}
    with pytest.raises(TypeError):
        frozen["a"] = 1  # type: ignore[index] # Frozen on purpose.


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {1, 2}}, {"a": b"bytes"}, {"a": object()}])
def test_a_value_that_json_cannot_express_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="can be stored"):
        records.freeze_record(value)


@pytest.mark.parametrize(
    "value, message",
    [
        ({"paths": [pathlib.Path("/")]}, ".paths[0] is PosixPath; only"),
        ({"a": {"b c": (1, {"d": {1}})}}, ".a['b c'][1].d is set; only"),
        ({"a": {1: "x"}}, ".a[1] is a key of type int; only"),
        ({b"a": "x"}, "[b'a'] is a key of type bytes; only"),
    ],
)
def test_a_refused_value_is_named_by_its_path_of_keys(value: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError) as refused:
        records.freeze_record(value)
    assert str(refused.value).startswith(message)


def test_a_recursive_value_is_refused_in_one_line() -> None:
    value: dict[str, object] = {}
    value["again"] = [value]
    with pytest.raises(TypeError, match=r"^\.again\[0\]\.again.*\.\.\. is nested deeper than 64 and cannot be stored$") as refused:
        records.freeze_record(value)
    assert len(str(refused.value)) < 200


def test_depth_is_counted_in_lists_as_in_objects() -> None:
    def nested(depth: int) -> object:
        value: object = "x"
        for _ in range(depth):
            value = [value]
        return value

    assert records.thaw(records.freeze_record({"a": nested(records.DEPTH_MAX - 1)})) == {"a": nested(records.DEPTH_MAX - 1)}
    with pytest.raises(TypeError, match="nested deeper"):
        records.freeze_record({"a": nested(records.DEPTH_MAX)})
