"""A device that the API server would refuse cannot be made."""

import datetime
from typing import Any

import pytest

from drakit.core import capacity, device, errors, quantity

SHARED = capacity.Capacity(value=quantity.Quantity.of(10), policy=capacity.RequestPolicy(default=quantity.ONE))


def a_taint(**changes: Any) -> device.Taint:
    return device.Taint(**{"key": "example.com/bad"} | changes)


def draws(counter_set: str) -> device.CounterConsumption:
    return device.CounterConsumption(counter_set=counter_set, counters={"memory": 1})


@pytest.mark.parametrize(
    "fields, where",
    [
        ({"name": "GPU-0"}, "devices[GPU-0].name"),
        ({"name": 5}, "devices[5].name"),
        ({"attributes": {"a-b": 1}}, "devices[a].attributes"),
        ({"attributes": {"x": 1.5}}, "devices[a].attributes[x]"),
        ({"capacity": {"memory": "40 Gi"}}, "devices[a].capacity[memory].value"),
        ({"capacity": {"copy-engines": 1}}, "devices[a].capacity"),
        ({"attributes": {f"a{n}": n for n in range(20)}, "capacity": {f"c{n}": n for n in range(13)}}, "devices[a]"),
        ({"attributes": {"list": tuple(range(49))}}, "devices[a].attributes"),
        ({"taints": (a_taint(),) * 17}, "devices[a].taints"),
        ({"consumes": (draws("a"), draws("b"), draws("c"))}, "devices[a].consumesCounters"),
        ({"consumes": (draws("a"), draws("a"))}, "devices[a].consumesCounters"),
        ({"binding_conditions": tuple("abcde"), "binding_failure_conditions": ("f",)}, "devices[a].bindingConditions"),
        ({"binding_conditions": ("ready",)}, "devices[a].bindingConditions"),
        ({"binding_conditions": ("x",), "binding_failure_conditions": ("x",)}, "devices[a].bindingConditions"),
        ({"binding_conditions": ("not ready",), "binding_failure_conditions": ("x",)}, "devices[a].bindingConditions"),
        ({"includes": tuple(f"m{n}" for n in range(9))}, "devices[a].includes"),
        ({"includes": ("No",)}, "devices[a].includes"),
        ({"capacity": {"bandwidth": SHARED}}, "devices[a].capacity[bandwidth].requestPolicy"),
    ],
)
def test_a_broken_device_is_refused_by_field(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        device.Device(**{"name": "a"} | fields)
    assert caught.value.field == where


@pytest.mark.parametrize(
    "fields, message",
    [
        (
            {"name": "GPU_0"},
            (
                "devices[GPU_0].name: 'GPU_0' is not a DNS label (lower-case letters, digits and '-', at most 63, first and last alphanumeric)"
                "; 'gpu-0' is one"
            ),
        ),
        (
            {"capacity": {"memory": capacity.Capacity(value="40GB")}},
            (
                "devices[a].capacity[memory].value: '40GB' has an unknown suffix 'GB'; "
                "write 40G: a quantity has no unit; bandwidth is in bits per second, memory in bytes"
            ),
        ),
        (
            {"capacity": {"slots": capacity.Capacity(value=8, policy=capacity.RequestPolicy(default=3, valid_values=(1, 4, 8)))}},
            "devices[a].capacity[slots].requestPolicy.default: 3 is not a valid amount; the next valid amount is 4",
        ),
        (
            {"capacity": {"slots": capacity.Capacity(value=8, policy=capacity.RequestPolicy(default=9, valid_values=(1, 4, 8)))}},
            "devices[a].capacity[slots].requestPolicy.default: 9 is not a valid amount; every valid amount is below it",
        ),
    ],
)
def test_a_broken_device_is_named_with_its_field_its_value_and_the_fix(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        device.Device(**{"name": "a"} | fields, allow_multiple_allocations=True)
    assert str(caught.value) == message


def test_a_device_at_every_limit_is_taken() -> None:
    full = device.Device(
        name="a" * 63,
        attributes={f"a{n}": (1, 2) for n in range(24)},
        capacity={f"c{n}": capacity.Capacity.of(n) for n in range(8)},
        consumes=(draws("a"), draws("b")),
        taints=(a_taint(),) * 16,
        binding_conditions=tuple("abcd"),
        binding_failure_conditions=tuple("efgh"),
        includes=tuple(f"m{n}" for n in range(8)),
    )
    assert len(full.attributes) + len(full.capacity) == 32


@pytest.mark.parametrize(
    "fields, where",
    [
        ({"key": "not a key"}, "taints.key"),
        ({"value": "not a value"}, "taints[example.com/bad].value"),
        ({"time_added": datetime.datetime(2026, 1, 1)}, "taints[example.com/bad].timeAdded"),  # noqa: DTZ001 - wrong on purpose
    ],
)
def test_a_broken_taint_is_refused_by_field(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        a_taint(**fields)
    assert caught.value.field == where


def test_values_handed_in_cannot_change_a_device_later() -> None:
    attributes: dict[str, Any] = {"model": "a"}
    made = device.Device(name="a", attributes=attributes)
    attributes["model"] = "b"
    assert made.attributes == {"model": "a"}
    with pytest.raises(TypeError):
        made.attributes["model"] = "c"  # type: ignore[index] # Frozen on purpose.


def test_a_policy_needs_a_shared_device() -> None:
    assert device.Device(name="a", allow_multiple_allocations=True, capacity={"bandwidth": SHARED}).capacity["bandwidth"] == SHARED


def test_parts_of_one_device_share_its_lock() -> None:
    assert device.Device(name="gpu-0", consumes=(draws("set-b"), draws("set-a"))).lock_names == ("set-a", "set-b")
    assert device.Device(name="nic-0").lock_names == ("nic-0",)


@pytest.mark.parametrize("amount", [-1, "-1Gi", "lots"])
def test_a_counter_that_is_no_amount_is_refused(amount: Any) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        device.CounterSet(name="gpu-0", counters={"memory": amount})
    assert caught.value.field == "sharedCounters[gpu-0].counters[memory]"


def test_a_counter_set_keeps_its_limits() -> None:
    with pytest.raises(errors.InventoryError, match="33 counters"):
        device.CounterSet(name="a", counters={f"c{n}": quantity.ONE for n in range(33)})
    with pytest.raises(errors.InventoryError, match="9 includes"):
        device.CounterConsumption(counter_set="a", includes=tuple(f"m{n}" for n in range(9)))


@pytest.mark.parametrize("groups", [("a", "b", "c"), ("a", "a"), ("",)])
def test_a_consumption_has_at_most_two_different_compatibility_groups(groups: tuple[str, ...]) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        device.CounterConsumption(counter_set="chip", counters={"slots": 1}, compatibility_groups=groups)
    assert caught.value.field == "consumesCounters[chip].compatibilityGroups"
