"""A value of the wrong type is refused in the author's own line, by the name of the field, with what to write instead."""

import collections
import dataclasses
import enum
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NewType, Optional, Union

import pytest

import drakit
from drakit import testing
from drakit.core import advanced, config, driver, records
from drakit.core.encoding import opaque_parameters
from fakes import author

A_MOUNT: Any = drakit.Mount(host_path="/a", container_path="/b")
A_PATH: Any = pathlib.Path("/a")
FIVE: Any = 5
NOTHING: Any = None


@pytest.mark.parametrize(
    "kind, given, message",
    [
        (drakit.Edits, {"env": {"A": FIVE}}, "Edits.env['A'] is int; give text, str(...) of it"),
        (drakit.Edits, {"env": {"A": NOTHING}}, "Edits.env['A'] is NoneType; leave it out"),
        (drakit.Edits, {"env": {FIVE: "A"}}, "Edits.env: the name 5 is int; give text, str(...) of it"),
        (drakit.Edits, {"env": ["A=5"]}, "Edits.env is list; give a mapping of names to values"),
        (drakit.Edits, {"mounts": (("/a", "/b"),)}, "Edits.mounts[0] is tuple; give drakit.Mount(...)"),
        (drakit.Edits, {"mounts": A_MOUNT}, "Edits.mounts is Mount; give a tuple of drakit.Mount, also where it has only one"),
        (drakit.Edits, {"mounts": NOTHING}, "Edits.mounts is NoneType; give a tuple of drakit.Mount"),
        (drakit.Edits, {"device_nodes": ("/dev/null",)}, "Edits.device_nodes[0] is str; give drakit.DeviceNode(...)"),
        (drakit.Edits, {"hooks": (A_MOUNT,)}, "Edits.hooks[0] is Mount; give drakit.Hook(...)"),
        (drakit.Edits, {"net_devices": ({},)}, "Edits.net_devices[0] is dict; give drakit.NetDevice(...)"),
        (drakit.Mount, {"host_path": A_PATH, "container_path": "/b"}, "Mount.host_path is PosixPath; give text, str(...) of it"),
        (drakit.Mount, {"host_path": "/a", "container_path": A_PATH}, "Mount.container_path is PosixPath; give text"),
        (drakit.Mount, {"host_path": "/a", "container_path": "/b", "options": "ro"}, "Mount.options is str; give a tuple of texts"),
        (drakit.Mount, {"host_path": "/a", "container_path": "/b", "options": ("ro", FIVE)}, "Mount.options[1] is int; give text"),
        (drakit.DeviceNode, {"path": A_PATH}, "DeviceNode.path is PosixPath; give text"),
        (drakit.DeviceNode, {"path": "/a", "major": "1"}, "DeviceNode.major is str; give a whole number, or leave it out"),
        (drakit.Hook, {"name": "prestart", "path": "/a"}, "Hook.name is str; give one of drakit.HookName"),
        (drakit.Hook, {"name": drakit.HookName.PRESTART, "path": A_PATH}, "Hook.path is PosixPath; give text"),
        (drakit.Hook, {"name": drakit.HookName.PRESTART, "path": "/a", "args": "x"}, "Hook.args is str; give a tuple of texts"),
        (drakit.Hook, {"name": drakit.HookName.PRESTART, "path": "/a", "env": {"A": FIVE}}, "Hook.env['A'] is int; give text"),
        (drakit.Hook, {"name": drakit.HookName.PRESTART, "path": "/a", "timeout": "5"}, "Hook.timeout is str; give a whole number"),
        (drakit.NetDevice, {"host_interface_name": "a", "name": FIVE}, "NetDevice.name is int; give text"),
        (drakit.Prepared, {"edits": {}}, "Prepared.edits is dict; give drakit.Edits(...)"),
        (drakit.Prepared, {"record": {"paths": [A_PATH]}}, "Prepared.record.paths[0] is PosixPath; only None, bool"),
        (drakit.Prepared, {"record": [1]}, "Prepared.record is list; give a mapping with text keys"),
    ],
)
def test_a_wrong_type_is_named_with_its_field_and_the_fix(kind: Callable[..., object], given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as refused:
        kind(**given)
    assert str(refused.value).startswith(message)


def test_invalid_metadata_attributes_are_named() -> None:
    half: Any = 0.5
    with pytest.raises(drakit.InventoryError, match=r"^Prepared\.metadata\[b\]: 0\.5 is not text, a whole number"):
        drakit.Prepared(metadata={"a": 5, "b": half})


class Word(str):
    """Text of a type of the author's own."""

    __slots__ = ()


def test_subclasses_of_str_and_any_iterable_are_accepted() -> None:
    mounts = (drakit.Mount(host_path=Word("/a"), container_path="/b", options=["ro"]) for _ in range(2))  # type: ignore[arg-type] # A list.
    made = drakit.Edits(env=collections.ChainMap({"A": Word("1")}), mounts=mounts)  # type: ignore[arg-type] # A generator.
    assert made == drakit.Edits(env={"A": "1"}, mounts=[drakit.Mount(host_path="/a", container_path="/b", options=("ro",))] * 2)  # type: ignore[arg-type]


class Planning(author.FakeDriver):
    """Plans what no journal can keep."""

    def plan(self, grant: drakit.Grant[author.Tuning]) -> drakit.Record:
        return {"identity": grant.device.name, "slots": [{"at": A_PATH}]}


def test_an_intent_that_json_cannot_express_is_named_by_its_keys() -> None:
    hardware = author.Hardware()
    with testing.Node(lambda: Planning(hardware)) as node:
        answer = node.try_prepare(node.claim("chip-0"))
        assert "TypeError: grant.intent.slots[0].at is PosixPath; only None" in answer.error
        assert node.is_clean
        assert hardware.made == {}


Name = NewType("Name", str)


class Colour(enum.Enum):
    """What JSON can express."""

    RED = "red"


class Place(enum.Enum):
    """What JSON cannot express."""

    HERE = (1, 2)


@dataclasses.dataclass(frozen=True)
class Fine:
    """Every annotation that can be decoded, and a class attribute, which is not decoded."""

    made: ClassVar[list[int]] = []
    name: Name
    rate: drakit.Quantity
    colour: Colour = Colour.RED
    level: Literal[1, "two", True] = 1
    ratio: float | None = None
    other: Optional[int] = None  # noqa: UP045 - as some still write it
    parts: tuple["Fine", ...] = ()
    limits: Mapping[str, tuple[drakit.Quantity | None, ...]] = dataclasses.field(default_factory=dict)
    noted: Annotated[str, "a note of the author's own"] = ""
    worked_out: set[int] = dataclasses.field(default_factory=set, init=False)


class Plain:
    """No dataclass."""


def annotated(annotation: object) -> type[object]:
    return dataclasses.make_dataclass("Inner", [("field", annotation)], frozen=True)


def kinds(api_version: str | None, kind: str | None) -> type[object]:
    given = {"api_version": api_version, "kind": kind}
    return dataclasses.make_dataclass("Kind", [], namespace={name: value for name, value in given.items() if value})


def test_types_that_can_be_decoded_pass() -> None:
    opaque_parameters.check_types((Fine,), "D.config_types")
    opaque_parameters.check_types((kinds("a/v1", "A"), kinds("a/v1", "B")), "D.config_types")
    opaque_parameters.check_types((drakit.Driver.config_types), "D.config_types")


@pytest.mark.parametrize(
    "types, message",
    [
        (Fine, "D.config_types is the class Fine; give a tuple of dataclasses, such as (MyConfig,)"),
        ([Fine], "D.config_types is [<class"),
        (None, "D.config_types is None; give a tuple"),
        ((), "D.config_types is an empty tuple; give a tuple"),
        (("Fine",), "D.config_types[0] is 'Fine'; give a dataclass, the class itself"),
        ((Fine, Plain), "D.config_types[1]: Plain is not a dataclass; write @dataclasses.dataclass(frozen=True) above it"),
        ((kinds("a/v1", None),), "D.config_types: Kind must declare both api_version and kind, or neither"),
        ((Fine, kinds("a/v1", "A")), "D.config_types: several configuration types need api_version and kind, each pair once"),
        ((kinds("a/v1", "A"), kinds("a/v1", "A")), "D.config_types: several configuration types need api_version and kind"),
        ((annotated("Missing"),), "Inner: its annotations cannot be evaluated (name 'Missing' is not defined); import or define"),
    ],
)
def test_types_that_cannot_be_decoded_are_named_with_the_fix(types: object, message: str) -> None:
    with pytest.raises(TypeError) as refused:
        opaque_parameters.check_types(types, "D.config_types")
    assert str(refused.value).startswith(message)


UNDECODABLE: tuple[object, ...] = (
    list[int],
    dict[str, int],
    tuple[int, int],
    tuple[()],
    tuple,
    Mapping[int, str],
    Mapping,
    int | str,
    Union[int, str, None],  # noqa: UP007 - as some still write it
    set[str],
    object,
    Any,
    Plain,
    pathlib.Path,
    None,
    tuple[list[int], ...],
    Mapping[str, Plain],
    list[int] | None,
)


@pytest.mark.parametrize("annotation", UNDECODABLE, ids=str)
def test_an_annotation_that_cannot_be_decoded_is_named_by_class_and_field(annotation: object) -> None:
    inner = annotated(annotation)
    outer = dataclasses.make_dataclass("Outer", [("inner", tuple[inner, ...])])  # type: ignore[valid-type] # Made here.
    with pytest.raises(
        TypeError, match=r"^Inner\.field has the annotation .*, which cannot be decoded; write str, int, .*tuple\[T, \.\.\.\]"
    ):
        opaque_parameters.check_types((outer,), "D.config_types")


VALUES: tuple[object, ...] = (1, "a", [[1]], {"a": {}})


@pytest.mark.parametrize("annotation", UNDECODABLE, ids=str)
def test_configuration_types_are_refused_at_start_exactly_as_in_decoding(annotation: object) -> None:
    def refused(value: object) -> bool:
        try:
            config.decode(records.freeze_record({"field": value}), (annotated(annotation),))
        except TypeError:
            return True
        except drakit.ConfigError:
            return False
        return False

    assert any(refused(value) for value in VALUES)


@pytest.mark.parametrize("annotation", [Place, Literal[b"x"]], ids=str)
def test_options_that_json_cannot_express_are_refused(annotation: object) -> None:
    with pytest.raises(TypeError, match=r"^Inner\.field can be .*, which JSON cannot express; use text, numbers, true or false$"):
        opaque_parameters.check_types((annotated(annotation),), "D.config_types")


class Asynchronous(author.FakeDriver):
    """Has a verb that nobody would await."""

    async def unprepare(self, grant: drakit.Grant[author.Tuning]) -> None:  # type: ignore[override] # What authors may try.
        """Would do nothing."""


def test_a_driver_with_an_async_verb_is_not_opened() -> None:
    message = (
        r"^Asynchronous\.unprepare is async, and drakit calls verbs in threads of its own; "
        r"write def unprepare\(\.\.\.\), and run the asynchronous part in it with asyncio\.run\(\.\.\.\)$"
    )
    with pytest.raises(TypeError, match=message):
        driver.open_driver(Asynchronous(author.Hardware()), lambda _: ())
    with pytest.raises(drakit.DrakitError, match=message):
        testing.Node(lambda: Asynchronous(author.Hardware()))


def test_the_verbs_that_may_not_be_async_are_those_of_both_pages() -> None:
    pages = [driver.Driver, *(kind for kind in vars(advanced).values() if isinstance(kind, type) and kind.__module__ == advanced.__name__)]
    named = {name for page in pages for name, member in vars(page).items() if inspect.isfunction(member) and not name.startswith("_")}
    assert named - {"planned"} == set(driver.VERBS)


class Misconfigured(author.FakeDriver):
    config_types: ClassVar[tuple[type[object], ...]] = (Plain,)


def test_a_driver_whose_configuration_cannot_be_decoded_is_not_opened() -> None:
    with pytest.raises(TypeError, match=r"^Misconfigured\.config_types\[0\]: Plain is not a dataclass"):
        driver.open_driver(Misconfigured(author.Hardware()), lambda _: ())
    with pytest.raises(TypeError, match=r"^Misconfigured\.config_types\[0\]: Plain is not a dataclass"):
        testing.Node(lambda: Misconfigured(author.Hardware()))
