"""Every wrong argument of what authors construct is named with its field and what to give instead."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import pytest

import drakit
from drakit import testing

DRAWN = drakit.CounterConsumption(counter_set="card", counters={"engines": 1})
UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
SAMPLES: Mapping[type[Any], Mapping[str, object]] = {
    drakit.ClusterPool: {"name": "pool", "reach": drakit.AllNodes(), "inventory": drakit.Inventory()},
    drakit.Condition: {"type": "Ready", "status": True, "reason": "Up"},
    drakit.ConsumptionMixin: {"name": "m", "counters": {"engines": 1}},
    drakit.CounterConsumption: {"counter_set": "card", "counters": {"engines": 1}},
    drakit.CounterSet: {"name": "card", "counters": {"engines": 1}},
    drakit.CounterSetMixin: {"name": "m", "counters": {"engines": 1}},
    drakit.Device: {"name": "a"},
    drakit.DeviceMixin: {"name": "m"},
    drakit.DeviceNode: {"path": "/dev/a"},
    drakit.DeviceStatus: {"device": "a"},
    drakit.Edits: {},
    drakit.Event: {"reason": "Up", "message": "up"},
    drakit.Finding: {"topic": "t", "subject": "s", "verdict": drakit.Verdict.OK, "message": "m"},
    drakit.HealthReport: {"device": "a", "health": drakit.Health.HEALTHY},
    drakit.Hook: {"name": drakit.HookName.CREATE_RUNTIME, "path": "/bin/true"},
    drakit.Inventory: {},
    drakit.Leftover: {"kind": "share", "name": "a"},
    drakit.Metric: {"name": "a", "documentation": "a", "value": 1.0},
    drakit.Mixins: {},
    drakit.Mount: {"host_path": "/a", "container_path": "/a"},
    drakit.NetDevice: {"host_interface_name": "eth0", "name": "eth0"},
    drakit.NetworkStatus: {},
    drakit.NodeSelector: {"expressions": (drakit.Requirement(key="k", operator=drakit.Operator.EXISTS),)},
    drakit.NotOffered: {"kind": "interface", "name": "eth0", "reason": "is used"},
    drakit.OneNode: {"name": "n"},
    drakit.Prepared: {},
    drakit.Requirement: {"key": "k", "operator": drakit.Operator.EXISTS},
    drakit.Taint: {"key": "k"},
}
GIVEN_BY_THE_FRAMEWORK = {"AllNodes", "ClaimRef", "Grant", "NoConfig", "OpaqueConfig", "PerDevice", "PodState", "Quantity", "Version"}
CHECKED_BY_THEIR_DEVICE = {"Capacity", "NodeResource", "RequestPolicy", "ValidRange"}
FAMILIES_ONLY = {"PodRequest", "Right", "Rules", "Site"}


class Wrong:
    """Nothing takes it."""


def test_every_public_dataclass_is_tried_or_is_not_constructed_by_authors() -> None:
    public = [getattr(drakit, name) for name in drakit.__all__]
    named = {value.__name__ for value in public if inspect.isclass(value) and dataclasses.is_dataclass(value)}
    assert named == {kind.__name__ for kind in SAMPLES} | GIVEN_BY_THE_FRAMEWORK | CHECKED_BY_THEIR_DEVICE | FAMILIES_ONLY


@pytest.mark.parametrize(
    "kind, field", [(kind, field.name) for kind in SAMPLES for field in dataclasses.fields(kind) if field.init], ids=str
)
def test_a_wrong_argument_is_named_with_its_field(kind: type[Any], field: str) -> None:
    kind(**SAMPLES[kind])
    with pytest.raises((TypeError, drakit.DrakitError)) as refused:
        kind(**{**SAMPLES[kind], field: Wrong()})
    first, *rest = field.split("_")
    camel_case = "".join([first, *map(str.capitalize, rest)])
    text = str(refused.value)
    assert any(name in text for name in (field, camel_case)), text
    assert "Wrong" in text, text


@pytest.mark.parametrize(
    "make, said",
    [
        (
            lambda: drakit.Device(name="a", consumes=DRAWN),  # type: ignore[arg-type]
            "Device.consumes is CounterConsumption; give a tuple of CounterConsumption, such as (x,) for one",
        ),
        (
            lambda: drakit.Edits(device_nodes=("/dev/a",)),  # type: ignore[arg-type]
            "Edits.device_nodes[0] is str; give drakit.DeviceNode(...)",
        ),
        (
            lambda: drakit.HealthReport(device="a", health="Healthy"),  # type: ignore[arg-type]
            "HealthReport.health is str; give one of Health.UNKNOWN, Health.HEALTHY, Health.UNHEALTHY",
        ),
        (lambda: drakit.Edits(env="A=1"), "Edits.env is str; give a mapping of names to values"),  # type: ignore[arg-type]
        (lambda: drakit.Inventory(devices=drakit.Device), "is the class Device; give a tuple of Device"),  # type: ignore[arg-type]
    ],
)
def test_the_error_says_what_to_give(make: Any, said: str) -> None:
    with pytest.raises(TypeError) as refused:
        make()
    assert said in str(refused.value)


def test_an_error_in_discover_reaches_the_author_with_its_field() -> None:
    class Card(drakit.Driver[drakit.NoConfig]):
        name = "card.example.com"

        def discover(self) -> drakit.Inventory:
            return drakit.Inventory(devices=(drakit.Device(name="a", consumes=DRAWN),))  # type: ignore[arg-type]

        def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
            return drakit.Prepared()

    with pytest.raises(TypeError, match=r"Device\.consumes is CounterConsumption"), testing.Node(Card):
        pass
