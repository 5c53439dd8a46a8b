"""Opaque parameters are decoded strictly: every mistake is told by its path."""

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NewType

import pytest

from drakit.core import config, driver, errors, quantity, records
from drakit.core.encoding import opaque_parameters, wire

Name = NewType("Name", str)


class Mode(enum.Enum):
    """How time is shared."""

    SHORT = "Short"
    LONG = "Long"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing:
    """A nested object."""

    strategy: Literal["None", "TimeSlicing", "MPS"] = "None"
    time_slice: Mode = Mode.SHORT
    max_clients: int | None = None

    def __post_init__(self) -> None:
        if self.strategy == "MPS" and self.max_clients is None:
            raise errors.ConfigError("is required with MPS", field="maxClients")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Everything:
    """One field of every kind."""

    name: Name
    count: int = 0
    ratio: float = 1.0
    enabled: bool = False
    memory_limit: quantity.Quantity = quantity.ZERO
    sharing: Sharing = Sharing()
    devices: tuple[Sharing, ...] = ()
    limits: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class GpuConfig:
    """One of several kinds."""

    api_version: ClassVar[str] = "gpu.drakit.dev/v1"
    kind: ClassVar[str] = "GpuConfig"
    sharing: Sharing = Sharing()


@dataclasses.dataclass(frozen=True)
class MigConfig:
    """Another of several kinds."""

    api_version: ClassVar[str] = "gpu.drakit.dev/v1"
    kind: ClassVar[str] = "MigConfig"


KINDS = (GpuConfig, MigConfig)


def refused(parameters: Mapping[str, Any], *kinds: type[object]) -> errors.ConfigError:
    with pytest.raises(errors.ConfigError) as caught:
        config.decode(records.freeze_record(parameters), kinds or (Everything,))
    return caught.value


def test_every_kind_of_field_is_decoded() -> None:
    decoded = config.decode(
        records.freeze_record(
            {
                "name": "a",
                "count": 3,
                "ratio": 2,
                "enabled": True,
                "memoryLimit": "40Gi",
                "sharing": {"strategy": "TimeSlicing", "timeSlice": "Long", "maxClients": None},
                "devices": [{"strategy": "MPS", "maxClients": 4}, {}],
                "limits": {"gpu-0": "1Gi", "gpu-1": 7},
            }
        ),
        (Everything,),
    )
    assert decoded == Everything(
        name=Name("a"),
        count=3,
        ratio=2.0,
        enabled=True,
        memory_limit=quantity.Quantity.parse("40Gi"),
        sharing=Sharing(strategy="TimeSlicing", time_slice=Mode.LONG),
        devices=(Sharing(strategy="MPS", max_clients=4), Sharing()),
        limits={"gpu-0": quantity.Quantity.parse("1Gi"), "gpu-1": quantity.Quantity.of(7)},
    )
    assert isinstance(decoded, Everything)
    assert isinstance(decoded.limits, types.MappingProxyType)
    assert isinstance(decoded.ratio, float)


def test_an_omitted_field_takes_its_default() -> None:
    assert config.decode({"name": "a"}, (Everything,)) == Everything(name=Name("a"))


@pytest.mark.parametrize(
    "parameters, field, message",
    [
        ({}, "parameters.name", "is required"),
        ({"name": 1}, "parameters.name", "must be text, not 1"),
        ({"name": None}, "parameters.name", "must be text, not null"),
        ({"name": "a", "count": True}, "parameters.count", "must be a whole number, not true"),
        ({"name": "a", "count": 1.0}, "parameters.count", "must be a whole number, not 1.0"),
        ({"name": "a", "count": "1"}, "parameters.count", 'must be a whole number, not "1"'),
        ({"name": "a", "ratio": True}, "parameters.ratio", "must be a number, not true"),
        ({"name": "a", "ratio": float("nan")}, "parameters.ratio", "must be a number, not NaN"),
        ({"name": "a", "enabled": 1}, "parameters.enabled", "must be true or false, not 1"),
        ({"name": "a", "enabled": "true"}, "parameters.enabled", 'must be true or false, not "true"'),
        ({"name": "a", "memoryLimit": 1.5}, "parameters.memoryLimit", "must be a quantity"),
        ({"name": "a", "memoryLimit": True}, "parameters.memoryLimit", "must be a quantity"),
        ({"name": "a", "memoryLimit": "4 Gi"}, "parameters.memoryLimit", "'4 Gi' is not a quantity"),
        ({"name": "a", "sharing": []}, "parameters.sharing", "must be an object, not a list"),
        (
            {"name": "a", "sharing": {"strategy": "Mps"}},
            "parameters.sharing.strategy",
            'must be one of "None", "TimeSlicing", "MPS", not "Mps"',
        ),
        ({"name": "a", "sharing": {"timeSlice": "short"}}, "parameters.sharing.timeSlice", 'must be one of "Short", "Long", not "short"'),
        ({"name": "a", "sharing": {"maxClients": "4"}}, "parameters.sharing.maxClients", "must be a whole number"),
        ({"name": "a", "sharing": {"strategy": "MPS"}}, "parameters.sharing.maxClients", "is required with MPS"),
        ({"name": "a", "devices": {}}, "parameters.devices", "must be a list, not an object"),
        ({"name": "a", "devices": "gpu"}, "parameters.devices", "must be a list"),
        ({"name": "a", "devices": [{}, {"strategy": 1}]}, "parameters.devices[1].strategy", "must be one of"),
        ({"name": "a", "limits": [1]}, "parameters.limits", "must be an object, not a list"),
        ({"name": "a", "limits": {"gpu 0": "x"}}, 'parameters.limits["gpu 0"]', "is not a quantity"),
        ({"name": "a", "sharing": {"timeslice": "Long"}}, "parameters.sharing.timeslice", "known are timeSlice, maxClients, strategy"),
        ({"name": "a", "memory_limit": "1"}, "parameters.memory_limit", "known are memoryLimit, "),
        ({"name": "a", "apiVersion": "v1"}, "parameters.apiVersion", "is not a known field"),
    ],
)
def test_a_mistake_is_reported_by_its_path(parameters: dict[str, Any], field: str, message: str) -> None:
    error = refused(parameters)
    assert error.field == field
    assert message in error.reason
    assert str(error).startswith(f"{field}: ")


def test_a_driver_without_parameters_takes_none() -> None:
    assert config.decode({}, (driver.NoConfig,)) == driver.NoConfig()
    error = refused({"speed": 1}, driver.NoConfig)
    assert (error.field, error.reason) == ("parameters.speed", "is not a known field; no field is allowed here")


def test_several_kinds_are_distinguished() -> None:
    assert config.decode({"apiVersion": "gpu.drakit.dev/v1", "kind": "MigConfig"}, KINDS) == MigConfig()
    assert opaque_parameters.kind_of(MigConfig) == "MigConfig"
    assert opaque_parameters.kind_of(Sharing) == "Sharing"


@pytest.mark.parametrize(
    "parameters, field",
    [
        ({}, "parameters.apiVersion"),
        ({"apiVersion": "gpu.drakit.dev/v1"}, "parameters.kind"),
        ({"apiVersion": 1, "kind": "GpuConfig"}, "parameters.apiVersion"),
        ({"apiVersion": "gpu.drakit.dev/v2", "kind": "GpuConfig"}, "parameters.apiVersion"),
        ({"apiVersion": "gpu.drakit.dev/v1", "kind": "gpuConfig"}, "parameters.kind"),
        ({"apiVersion": "gpu.drakit.dev/v1", "kind": "GpuConfig", "kinds": 1}, "parameters.kinds"),
    ],
)
@pytest.mark.parametrize("kinds", [KINDS, (GpuConfig,)])
def test_an_unknown_kind_is_reported_with_the_known_ones(parameters: dict[str, Any], field: str, kinds: tuple[type[object], ...]) -> None:
    error = refused(parameters, *kinds)
    assert error.field == field
    assert "gpu.drakit.dev/v1 GpuConfig" in error.reason or "known are sharing" in error.reason


@dataclasses.dataclass(frozen=True)
class CpuConfig:
    """Takes claims of a driver that had a version alone, and of one that had nothing."""

    api_version: ClassVar[str] = "cpu.example.com/v1"
    kind: ClassVar[str] = "CpuConfig"
    aliases: ClassVar[tuple[tuple[str, str], ...]] = (("v1alpha1", ""), ("", ""))
    cpuset: str = ""


@pytest.mark.parametrize(
    "identity", [{"apiVersion": "cpu.example.com/v1", "kind": "CpuConfig"}, {"apiVersion": "v1alpha1"}, {}, {"apiVersion": "", "kind": ""}]
)
@pytest.mark.parametrize("types", [(CpuConfig,), (*KINDS, CpuConfig)])
def test_aliases_take_the_claims_of_an_older_driver(identity: dict[str, str], types: tuple[type[object], ...]) -> None:
    assert config.decode({**identity, "cpuset": "0-3"}, types) == CpuConfig(cpuset="0-3")


@pytest.mark.parametrize(
    "identity, field",
    [
        ({"apiVersion": "v1alpha2"}, "parameters.kind"),
        ({"apiVersion": "v1alpha1", "kind": "Cpu"}, "parameters.kind"),
        ({"apiVersion": "v1alpha1", "kind": "CpuConfig"}, "parameters.apiVersion"),
        ({"apiVersion": ["v1alpha1"]}, "parameters.apiVersion"),
        ({"kind": {}}, "parameters.apiVersion"),
    ],
)
def test_other_versions_are_refused_with_the_drivers_own_alone(identity: dict[str, object], field: str) -> None:
    error = refused(identity, CpuConfig)
    assert error.field == field
    assert error.reason.endswith("known are cpu.example.com/v1 CpuConfig")


def test_aliases_that_break_the_rules_are_the_authors_bug() -> None:
    @dataclasses.dataclass(frozen=True)
    class Text(CpuConfig):
        aliases: ClassVar[Any] = ("v1alpha1", "")

    @dataclasses.dataclass(frozen=True)
    class Bare:
        aliases: ClassVar[tuple[tuple[str, str], ...]] = (("v1alpha1", ""),)

    @dataclasses.dataclass(frozen=True)
    class Second:
        api_version: ClassVar[str] = "cpu.example.com/v2"
        kind: ClassVar[str] = "CpuConfig"
        aliases: ClassVar[tuple[tuple[str, str], ...]] = (("cpu.example.com/v1", "CpuConfig"),)

    @dataclasses.dataclass(frozen=True)
    class Field:
        aliases: tuple[str, ...] = ()

    for wrong, said in (((Text,), "such as"), ((Bare,), "must declare api_version and kind"), ((CpuConfig, Second), "also among aliases")):
        with pytest.raises(TypeError, match=said):
            opaque_parameters.check_types(wrong, "Card.config_types")
    assert config.decode({"aliases": ["a"]}, (Field,)) == Field(aliases=("a",))


def test_too_large_and_too_deep_parameters_are_refused_before_they_are_read() -> None:
    assert "over the limit of 10240" in refused({"name": "é" * 5200}).reason
    assert isinstance(config.decode({"name": "a" * 10_000}, (Everything,)), Everything)
    nested: Any = "x"
    for _ in range(5000):
        nested = {"a": nested}
    assert "over 32 levels deep" in str(_refused_raw({"name": nested}))


def _refused_raw(parameters: records.Record) -> errors.ConfigError:
    with pytest.raises(errors.ConfigError) as caught:
        config.decode(parameters, (Everything,))
    return caught.value


def test_a_long_value_or_name_is_cut_in_the_message() -> None:
    assert len(str(refused({"name": "a", "count": "x" * 9000}))) < 200
    assert len(str(refused({"name": "a", "x" * 9000: 1}))) < 300


def test_errors_of_other_rules_keep_their_kind_and_gain_the_path() -> None:
    error = refused({"name": "a", "limits": {"gpu-0": "lots"}})
    assert isinstance(error, errors.QuantityError)


@dataclasses.dataclass(frozen=True)
class _HalfDeclared:
    kind: ClassVar[str] = "Half"


@dataclasses.dataclass(frozen=True)
class _Set:
    names: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class _Union:
    value: int | str = 0


@dataclasses.dataclass(frozen=True)
class _Pair:
    value: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class _Numbered:
    value: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _KindIsAField:
    kind: str = "veth"


@pytest.mark.parametrize(
    "parameters, kinds",
    [
        ({}, (_HalfDeclared,)),
        ({}, (Everything, GpuConfig)),
        ({}, (GpuConfig, GpuConfig)),
        ({}, (int,)),
        ({"names": []}, (_Set,)),
        ({"value": 1}, (_Union,)),
        ({"value": [1, 2]}, (_Pair,)),
        ({"value": {}}, (_Numbered,)),
    ],
)
def test_a_schema_that_breaks_the_rules_is_the_authors_bug(parameters: dict[str, Any], kinds: tuple[type[object], ...]) -> None:
    with pytest.raises(TypeError):
        config.decode(parameters, kinds)


def test_a_field_named_kind_is_an_ordinary_field() -> None:
    assert config.decode({"kind": "macvlan"}, (_KindIsAField,)) == _KindIsAField(kind="macvlan")


@pytest.mark.parametrize("name, written", [("a", "a"), ("time_slice", "timeSlice"), ("max_rate_mbps", "maxRateMbps"), ("class_", "class")])
def test_names_on_the_wire_are_camel_case(name: str, written: str) -> None:
    assert wire.camel(name) == written
