"""What a driver remembers is JSON, frozen all the way down."""

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
def test_what_json_cannot_express_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="can be remembered"):
        records.freeze_record(value)
