"""Names and attribute values are checked by the API's rules, before the API server sees them."""

from collections.abc import Callable

import pytest

from drakit.core import device, errors, names


@pytest.mark.parametrize(
    "check, good, bad",
    [
        (names.check_label, ["a", "gpu-0", "0", "a" * 63], ["", "A", "-a", "a-", "a.b", "a_b", "a" * 64, "a\n"]),
        (names.check_driver, ["gpu.drakit.dev", "a"], ["", "GPU.dev", "a..b", "a" * 64, ".a", "a."]),
        (names.check_pool, ["node-1", "rack.a/node-1", "a" * 253], ["", "a//b", "/a", "a/", "a" * 254, "A"]),
        (
            names.check_qualified,
            ["memory", "_x", "gpu.drakit.dev/uuid", "a" * 32],
            ["", "copy-engines", "0a", "a/b/c", "/a", "Gpu/a", "a" * 33, "a/"],
        ),
        (
            names.check_label_key,
            ["unhealthy", "example.com/Un.Healthy", "a" * 63],
            ["", "/a", "a/", "Example.com/a", "-a", "a" * 64, "a/b/c"],
        ),
        (names.check_label_value, ["", "True", "1.2_3", "a" * 63], ["-a", "a b", "a" * 64]),
    ],
)
def test_a_name_is_returned_or_refused_by_field(check: Callable[[str, str], str], good: list[str], bad: list[str]) -> None:
    for text in good:
        assert check(text, "here") == text
    for text in bad:
        with pytest.raises(errors.InventoryError) as caught:
            check(text, "here")
        assert caught.value.field == "here"


def test_uids_are_lower_case_uuids() -> None:
    assert names.is_uid("a671734a-e8e5-11e4-8fde-42010af09327")
    assert not names.is_uid("A671734A-E8E5-11E4-8FDE-42010AF09327")
    assert not names.is_uid("a671734ae8e511e48fde42010af09327")


@pytest.mark.parametrize("text", ["1.2.3", "0.0.0", "550.54.15", "1.0.0-rc.1+build.5", "1.0.0-x-y"])
def test_semantic_versions_are_taken(text: str) -> None:
    assert str(device.Version(text)) == text


@pytest.mark.parametrize("text", ["", "1", "12.4", "v1.2.3", "01.2.3", "1.2.03", "1.2.3-01", "1.2.3-", "1.2.3.4", "1.2.3+" + "a" * 64])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(errors.InventoryError):
        device.Version(text)


@pytest.mark.parametrize(
    "text, version",
    [("580.95.05", "580.95.5"), ("12.4", "12.4.0"), ("13", "13.0.0"), ("v1.2.3", "1.2.3"), ("N/A", None), ("1.2.3.4", None)],
)
def test_a_hardware_version_becomes_a_semantic_version_or_none(text: str, version: str | None) -> None:
    made = device.Version.lenient(text)
    assert (None if made is None else made.text) == version


@pytest.mark.parametrize("value", ["x" * 64, 2**63 - 1, -(2**63), True, device.Version("1.2.3"), ("a", "b"), (1,), (True, False)])
def test_a_value_of_an_api_type_is_accepted_unchanged(value: device.AttributeValue) -> None:
    assert device.check_attribute(value, "f") is value


@pytest.mark.parametrize("value", ["é" * 33, 2**63, 1.5, None, (), ("a", 1), (1, True), ("x" * 65,)])
def test_any_other_value_is_refused(value: object) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        device.check_attribute(value, "devices[a].attributes[x]")  # type: ignore[arg-type] # Wrong on purpose.
    assert caught.value.field == "devices[a].attributes[x]"


def test_text_is_cut_between_characters() -> None:
    assert device.truncate_text("x" * 70) == "x" * 64
    assert device.truncate_text("x" * 63 + "é") == "x" * 63
    assert device.truncate_text("short") == "short"


@pytest.mark.parametrize("suffix", [None, "fast", "node-1"])
def test_the_suffix_of_a_pool_is_read_back_from_its_name(suffix: str | None) -> None:
    assert names.suffix_of(names.pool_of_node("node-1", suffix), "node-1") == suffix
