"""What a device takes of its node: what is refused, and the form of Kubernetes 1.36."""

from typing import Any

import pytest

import drakit
from drakit.core import errors, node_resources


@pytest.mark.parametrize(
    "name, given, field",
    [
        ("cpu", {}, "[cpu]"),
        ("cpu", {"capacity": "cores"}, "[cpu].mapping"),
        ("cpu", {"per_unit": 1}, "[cpu].mapping"),
        ("cpu", {"capacity": "cores", "per_unit": 1, "per_device": 1}, "[cpu].mapping"),
        ("cpu", {"capacity": "lanes", "per_unit": 1}, "[cpu].mapping.capacityKey"),
        ("cpu", {"per_device": 0}, "[cpu].mapping.deviceMultiplier"),
        ("memory", {"per_pod": "-1Gi"}, "[memory].overhead.perPod"),
        ("example.com/dongle", {"per_device": 1}, "[example.com/dongle]"),
    ],
)
def test_what_the_server_would_refuse_is_refused_with_its_field(name: str, given: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        drakit.Device(name="a", capacity={"cores": 4}, node_resources={name: drakit.NodeResource(**given)})
    assert caught.value.field == f"devices[a].nodeAllocatableResources{field}"


def test_an_amount_in_place_of_a_node_resource_is_refused_with_the_fix() -> None:
    amount: Any = {"cpu": 1}
    with pytest.raises(errors.InventoryError, match=r"1 is not a NodeResource; write NodeResource\(per_device=...\)") as caught:
        drakit.Device(name="a", node_resources=amount)
    assert caught.value.field == "devices[a].nodeAllocatableResources[cpu]"


def test_a_capacity_of_a_mixin_may_be_what_a_device_takes_of_its_node() -> None:
    taken = {"cpu": drakit.NodeResource(capacity="cores", per_unit=1)}
    mixins = drakit.Mixins(device=(drakit.DeviceMixin(name="base", capacity={"cores": 4}),))
    made = drakit.Inventory(devices=(drakit.Device(name="a", includes=("base",), node_resources=taken),), mixins=mixins)
    assert made.flat().devices[0].node_resources == taken
    with pytest.raises(errors.InventoryError, match="no capacity 'cores'"):
        drakit.Inventory(
            devices=(drakit.Device(name="a", includes=("base",), node_resources=taken),),
            mixins=drakit.Mixins(device=(drakit.DeviceMixin(name="base"),)),
        )


@pytest.mark.parametrize(
    "given, older",
    [
        ({"per_device": 2, "per_pod": 1}, {"per_device": 3}),
        ({"capacity": "cores", "per_unit": 1, "per_pod": 1}, {"capacity": "cores", "per_unit": 1}),
        ({"capacity": "cores", "per_unit": "500m", "per_container": 1}, {"capacity": "cores", "per_unit": "500m"}),
        ({"per_pod": "1Gi", "per_container": "1Mi"}, {"per_device": "1Gi"}),
        ({"per_container": "1Mi"}, None),
    ],
)
def test_the_form_of_1_36_has_what_that_version_can_count(given: dict[str, Any], older: dict[str, Any] | None) -> None:
    expected = None if older is None else node_resources.NodeResourceMapping(**older)
    assert node_resources.as_mapping(drakit.NodeResource(**given)) == expected
