"""The devices of prepared claims, which stay offered while their GPU does not answer."""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping

import drakit
from drakit_gpu import port
from drakit_gpu.inventory import attributes

_MINOR = re.compile(r"gpu-(\d+)(?:-|$)")


def claimed_devices(context: drakit.DriverContext, boot: str) -> Mapping[str, tuple[port.Gpu, drakit.Device]]:
    """Return the devices of a boot's prepared claims with their GPUs, by device name. Counters are left out: nothing new is allocated."""
    claimed: dict[str, tuple[port.Gpu, drakit.Device]] = {}
    for grant in context.grants():
        minor, uuid = _MINOR.match(grant.device.name), grant.intent.get("gpu")
        address, product = grant.device.attributes.get(attributes.PCI_BUS_ID), grant.device.attributes.get("productName")
        if grant.intent.get("boot") != boot or minor is None or not isinstance(uuid, str) or not isinstance(address, str):
            continue
        gpu = port.Gpu(uuid=port.GpuUuid(uuid), minor=int(minor[1]), product_name=str(product), pci_bus_id=address, memory=None)
        claimed[grant.device.name] = gpu, dataclasses.replace(grant.device, consumes=(), taints=())
    return claimed


def claimed_gpus(context: drakit.DriverContext, boot: str) -> Mapping[int, port.Gpu]:
    """Return the GPUs of a boot's prepared claims, by minor number."""
    return {gpu.minor: gpu for gpu, _ in claimed_devices(context, boot).values()}


def with_claimed_devices(
    offered: drakit.Inventory, context: drakit.DriverContext, boot: str, minors: Collection[int], is_kept: Callable[[port.Gpu], bool]
) -> drakit.Inventory:
    """Return the inventory with the claimed devices of kept GPUs whose minor number is not in ``minors``."""
    missing = tuple(device for gpu, device in claimed_devices(context, boot).values() if gpu.minor not in minors and is_kept(gpu))
    return dataclasses.replace(offered, devices=(*offered.devices, *missing)) if missing else offered
