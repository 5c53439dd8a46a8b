"""Slices with something of everything the API has, small enough to read."""

import datetime

from drakit.core import capacity, device, inventory, quantity
from drakit.core.slices import resource_slice

DRIVER = "gpu.drakit.dev"
NODE = "node-1"


def amounts(**texts: str) -> dict[str, quantity.Quantity]:
    return {name: quantity.Quantity.parse(text) for name, text in texts.items()}


def spec_of(
    page: resource_slice.Page, *, generation: int = 1, count: int = 1, driver: str = DRIVER, node: str = NODE
) -> resource_slice.SliceSpec:
    return resource_slice.SliceSpec(
        driver=driver, node=node, pool=resource_slice.Pool(name=node, generation=generation, count=count), page=page
    )


def create(page: resource_slice.Page, *, index: int = 0) -> resource_slice.Create:
    return resource_slice.Create(index=index, prefix=f"{index:05x}-{DRIVER}-{NODE}-", spec=spec_of(page))


def plain_page(*names: str) -> resource_slice.Page:
    return resource_slice.Page(devices=tuple(device.Device(name=name) for name in names))


def rich_device_page() -> resource_slice.Page:
    """Devices with every kind of field that stock Kubernetes 1.36 stores."""
    partition = device.Device(
        name="gpu-0-mig-1g-5gb-0",
        attributes={
            "type": "mig",
            "empty": "",
            "index": 0,
            "healthy": True,
            "driverVersion": device.Version("580.95.5"),
            "resource.kubernetes.io/pcieRoot": "pci0000:00",
        },
        capacity={"memory": capacity.Capacity.of("4864Mi"), "multiprocessors": capacity.Capacity.of(14)},
        consumes=(device.CounterConsumption(counter_set="gpu-0", counters=amounts(memory="4864Mi", slice0="1")),),
        taints=(
            device.Taint(key="drakit.dev/unhealthy", value="ecc", time_added=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        ),
        binds_to_node=True,
        binding_conditions=("drakit.dev/ready",),
        binding_failure_conditions=("drakit.dev/failed",),
    )
    bandwidth = capacity.Capacity(
        value=quantity.Quantity.parse("10G"),
        policy=capacity.RequestPolicy(
            default=quantity.Quantity.parse("100M"),
            valid_range=capacity.ValidRange(
                min=quantity.Quantity.parse("100M"), max=quantity.Quantity.parse("10G"), step=quantity.Quantity.parse("100M")
            ),
        ),
    )
    queues = capacity.Capacity(
        value=quantity.Quantity.of(8),
        policy=capacity.RequestPolicy(default=quantity.Quantity.of(1), valid_values=(quantity.Quantity.of(1), quantity.Quantity.of(4))),
    )
    shared = device.Device(name="eth1", capacity={"bandwidth": bandwidth, "queues": queues}, allow_multiple_allocations=True)
    return resource_slice.Page(devices=(partition, shared))


def counter_page() -> resource_slice.Page:
    return resource_slice.Page(counter_sets=(device.CounterSet(name="gpu-0", counters=amounts(memory="40Gi", slice0="1")),))


def mixin_page() -> resource_slice.Page:
    """Mixins of the kinds that devices use, in the form that no released API server stores."""
    return resource_slice.Page(
        devices=(
            device.Device(
                name="gpu-0-mig-1g-5gb-0",
                attributes={"index": 0},
                includes=("a100", "mig-1g-5gb"),
                consumes=(device.CounterConsumption(counter_set="gpu-0", counters=amounts(slice0="1"), includes=("mig-1g-5gb",)),),
            ),
        ),
        mixins=inventory.Mixins(
            device=(
                inventory.DeviceMixin(name="a100", attributes={"productName": "NVIDIA A100-SXM4-40GB"}),
                inventory.DeviceMixin(name="mig-1g-5gb", capacity={"memory": capacity.Capacity.of("4864Mi")}),
            ),
            consumption=(inventory.ConsumptionMixin(name="mig-1g-5gb", counters=amounts(memory="4864Mi")),),
        ),
    )


def counter_mixin_page() -> resource_slice.Page:
    return resource_slice.Page(
        counter_sets=(device.CounterSet(name="gpu-0", counters=amounts(slice0="1"), includes=("a100",)),),
        mixins=inventory.Mixins(counter_set=(inventory.CounterSetMixin(name="a100", counters=amounts(memory="40Gi")),)),
    )


PAGES = {
    "plain": plain_page("a", "b"),
    "empty": resource_slice.Page(),
    "devices": rich_device_page(),
    "counters": counter_page(),
    "mixins": mixin_page(),
    "counter mixins": counter_mixin_page(),
}
