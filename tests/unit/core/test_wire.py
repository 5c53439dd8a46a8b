"""A dataclass is read from JSON and written as its format says; an error names the JSON path, from where the caller says."""

import dataclasses
import enum
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from drakit.core import errors, names, quantity
from drakit.core.encoding import wire


class Kind(enum.Enum):
    """Of a part."""

    BIG = "Big"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One of several."""

    name: str
    kind: Kind | None = None
    size: int = 0
    share: quantity.Quantity | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Two fields of the object around it."""

    node: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    """Everything a format can change."""

    uid: str
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ("ro",)
    is_on: bool = False
    label: Annotated[str, wire.checked(names.is_label, "a DNS label")] = ""
    place: Place | None = None


PLACE = wire.Converter(
    lambda value: Place(node=value["node"]) if "node" in value else None, lambda place: {} if place is None else {"node": place.node}
)
FIELDS: Mapping[tuple[type[object], str], wire.Field] = {
    (Whole, "uid"): wire.Field(name="UID"),
    (Whole, "options"): wire.Field(absent=()),
    (Whole, "place"): wire.Field(inline=True, converter=PLACE),
}
STRICT = wire.Format(fields=FIELDS)
KUBERNETES = wire.Format(ignore_unknown=True, empty_is_absent=True, sorted_keys=True, fields=FIELDS)
RICH: dict[str, Any] = {
    "node": "n",
    "UID": "u",
    "parts": [{"name": "a", "kind": "Big", "size": 0, "share": "0"}],
    "byName": {"b": {"name": "b", "size": 3}},
    "options": ["rw"],
    "isOn": True,
    "label": "x",
}


def test_a_written_value_is_read_back_equal() -> None:
    whole = KUBERNETES.decode(Whole, RICH)
    assert (whole.uid, whole.place, whole.parts[0].kind, whole.parts[0].share) == ("u", Place(node="n"), Kind.BIG, quantity.ZERO)
    assert KUBERNETES.encode(whole) == RICH


@pytest.mark.parametrize("written", [None, 7, [], {}, {"name": 1}, {"name": "a", "more": 1}])
def test_a_wrong_type_is_none_where_none_is_allowed(written: object) -> None:
    assert STRICT.decode_or_none(Part, written) is None
    assert STRICT.decode_or_none(Part, {"name": "a"}) == Part(name="a")


def test_empty_optional_fields_are_not_written_and_read_as_the_format_says() -> None:
    whole = STRICT.decode(Whole, {"UID": ""})
    assert whole == Whole(uid="", options=())
    assert STRICT.encode(whole) == {"UID": ""}
    assert STRICT.encode(Part(name="a")) == {"name": "a", "size": 0}


def test_an_empty_value_is_written_where_the_default_is_another() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Link:
        up: bool = True
        peer: str | None = "eth0"
        addresses: tuple[str, ...] = dataclasses.field(default_factory=lambda: ("10.0.0.1",))
        is_shared: bool = False

    written: dict[str, object] = {"up": False, "peer": None, "addresses": []}
    value = Link(up=False, peer=None, addresses=())
    assert wire.Format().encode(value) == written
    assert wire.Format().decode(Link, written) == value


def test_keys_of_maps_are_sorted_where_the_format_says_so() -> None:
    whole = Whole(uid="u", by_name={"b": Part(name="b"), "a": Part(name="a")})
    assert list(KUBERNETES.encode(whole)["byName"]) == ["a", "b"]
    assert list(STRICT.encode(whole)["byName"]) == ["b", "a"]


def test_null_and_empty_text_are_no_values_in_objects_of_kubernetes() -> None:
    assert KUBERNETES.decode(Part, {"name": "a", "kind": "", "size": None, "new": 1}) == Part(name="a")
    for empty in (None, ""):
        with pytest.raises(errors.ConfigError, match=r"^name: is required"):
            KUBERNETES.decode(Part, {"name": empty})
    with pytest.raises(errors.ConfigError, match=r"options\[1\]: must not be empty"):
        KUBERNETES.decode(Whole, {"UID": "u", "options": ["a", ""]})


@pytest.mark.parametrize(
    "written, field, message",
    [
        ({}, "claims.yaml[2].UID", "is required"),
        ("text", "claims.yaml[2]", 'must be an object, not "text"'),
        ({"UID": "u", "parts": 3}, "claims.yaml[2].parts", "must be a list, not 3"),
        ({"UID": "u", "parts": [{"name": "a"}, {"name": 1}]}, "claims.yaml[2].parts[1].name", "must be text, not 1"),
        ({"UID": "u", "byName": {"a/b": {}}}, 'claims.yaml[2].byName["a/b"].name', "is required"),
        ({"UID": "u", "byName": {"a": []}}, "claims.yaml[2].byName.a", "must be an object, not a list"),
        ({"UID": "u", "label": "A.b"}, "claims.yaml[2].label", "'A.b' is not a DNS label"),
    ],
)
def test_an_error_names_the_path_from_where_the_caller_says(written: object, field: str, message: str) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        KUBERNETES.decode(Whole, written, "claims.yaml[2]")
    assert (raised.value.field, raised.value.reason) == (field, message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flat:
    """Fields of objects inside."""

    uid: Annotated[str, wire.Field(name="metadata.uid")]
    results: Annotated[tuple[str, ...], wire.Field(name="status.allocation.results")] = ()
    allocation: Annotated[object, wire.Field(name="status.allocation", converter=wire.ANYTHING)] = None


def test_a_name_with_dots_leads_into_objects_inside() -> None:
    written = {"metadata": {"uid": "u", "name": "n"}, "status": {"allocation": {"results": ["a"]}}}
    flat = KUBERNETES.decode(Flat, written)
    assert flat == Flat(uid="u", results=("a",), allocation={"results": ["a"]})
    assert KUBERNETES.encode(Flat(uid="u", results=("a",))) == {"metadata": {"uid": "u"}, "status": {"allocation": {"results": ["a"]}}}
    for absent in ({}, {"status": None}, {"status": {"allocation": None}}):
        assert KUBERNETES.decode(Flat, {"metadata": {"uid": "u"}, **absent}) == Flat(uid="u")


@pytest.mark.parametrize(
    "written, message",
    [
        ({}, "o.metadata.uid: is required"),
        ({"metadata": []}, "o.metadata: must be an object, not a list"),
        ({"metadata": {"uid": "u"}, "status": {"allocation": 3}}, "o.status.allocation: must be an object, not 3"),
        ({"metadata": {"uid": "u"}, "status": {"allocation": {"results": [1]}}}, "o.status.allocation.results[0]: must be text, not 1"),
    ],
)
def test_an_error_inside_names_the_whole_path(written: object, message: str) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        KUBERNETES.decode(Flat, written, "o")
    assert str(raised.value) == message


def test_a_class_met_first_by_many_threads_is_read_by_all() -> None:
    start, read = threading.Barrier(8), list[Whole]()
    for _ in range(20):
        format_ = wire.Format(fields=FIELDS, ignore_unknown=True)

        def decode(rules: wire.Format = format_) -> None:
            start.wait()
            read.append(rules.decode(Whole, RICH))

        threads = [threading.Thread(target=decode) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read) == 160
    assert all(whole == read[0] for whole in read)


@pytest.mark.parametrize("text", ["a", "a.b", "a-1.b-2.c", "a" * 253])
def test_subdomains_are_labels_joined_by_dots(text: str) -> None:
    assert names.is_subdomain(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "-a.b", "a.b-", "A.b", "a_b", "a\n", "a" * 254, "a/b"])
def test_what_is_no_label_between_dots_makes_no_subdomain(text: str) -> None:
    assert not names.is_subdomain(text)
