"""Every wrong argument of what authors construct is named with its field and what to give instead."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import drakit
from drakit import numa, pci, testing, vfio
from drakit.node import driver_context

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
GIVEN_BY_THE_FRAMEWORK = {"AllNodes", "ClaimRef", "Grant", "NoConfig", "OpaqueConfig", "PerDevice", "PodState", "Quantity", "Version"} | {
    *("ClaimSpec", "ConfigSpec", "PodSpec", "RequestSpec", "RequestUse"),
}
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
        (
            lambda: testing.request("gpu", selector="true"),  # type: ignore[call-arg]
            "request has no parameter 'selector'; known are device_class, count, capacity, expression",
        ),
        (
            lambda: testing.request("r", device_class="gpu"),  # type: ignore[misc]
            "request: device_class is given twice, by its place and by its name; give it once",
        ),
        (
            lambda: drakit.Device(name="a", attribute={}),  # type: ignore[call-arg]
            "Device has no field 'attribute'; known are attributes, name, ",
        ),
        (lambda: drakit.Inventory(devices=drakit.Device), "is the class Device; give a tuple of Device"),  # type: ignore[arg-type]
    ],
)
def test_the_error_says_what_to_give(make: Any, said: str) -> None:
    with pytest.raises(TypeError) as refused:
        make()
    assert said in str(refused.value)


ANY_TEXT = {"is_label", "is_subdomain", "is_uid", "is_address"}
"""Functions that say of any value whether it is such a text."""
UNCHECKED = {
    ("freeze_record", "value"): "the error begins with the path in the value, so that the caller can put a field before it",
    ("thaw_record", "value"): "takes every value of JSON",
    ("no_intents", "_"): "ignores its argument",
    ("cut_text", "limit"): "drivers cut to the default",
    ("of_device", "system"): "another folder is for tests",
    ("near", "system"): "another folder is for tests",
    **{
        (name, "bus"): "a port, of which a fake may have some methods, or delegate them by __getattr__"
        for name in ("refusal", "plan", "recall", "bind", "is_bound", "release", "nodes")
    },
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public function, and the public methods of the test kit and of the context, by name."""
    for module in (drakit, testing, pci, numa, vfio):
        for name, value in vars(module).items():
            is_ours = inspect.isfunction(value) and value.__module__.startswith("drakit")
            if is_ours and (module.__name__ != "drakit" or name in drakit.__all__) and not name.startswith("_"):
                yield name, value
    for kind in (testing.Node, testing.Cluster, testing.FakeContext, driver_context.NodeDriverContext):
        for name, value in vars(kind).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield f"{kind.__name__}.{name}", value


PARAMETERS = [
    pytest.param(name, function, parameter, id=f"{name}({parameter.name})")
    for name, function in functions()
    for parameter in inspect.signature(function).parameters.values()
    if parameter.name != "self" and name not in ANY_TEXT and (name, parameter.name) not in UNCHECKED
]


@pytest.mark.parametrize("name, function, parameter", PARAMETERS)
def test_a_wrong_argument_of_a_function_is_named(name: str, function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    first: list[object] = [object()] if "." in name else []  # the object of a method
    is_rest = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    positional, given = ([*first, Wrong()], {}) if is_rest else (first, {parameter.name: Wrong()})
    with pytest.raises((TypeError, drakit.DrakitError)) as refused:
        function(*positional, **given)
    text = str(refused.value)
    assert f"{parameter.name} is Wrong; give " in text, text


def test_an_error_in_discover_reaches_the_author_with_its_field() -> None:
    class Card(drakit.Driver[drakit.NoConfig]):
        name = "card.example.com"

        def discover(self) -> drakit.Inventory:
            return drakit.Inventory(devices=(drakit.Device(name="a", consumes=DRAWN),))  # type: ignore[arg-type]

        def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
            return drakit.Prepared()

    with pytest.raises(TypeError, match=r"Device\.consumes is CounterConsumption"), testing.Node(Card):
        pass
