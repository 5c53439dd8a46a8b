"""The GPUs and devices of prepared claims, as the journal has them.

A GPU that is lost when the driver starts cannot be discovered. Its claimed devices are published from here, so that its taint reaches their pods.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping

from drakit.core import context, inventory
from drakit.core import device as devices
from drakit.devices.gpu import port
from drakit.devices.gpu.inventory import attributes

_MINOR = re.compile(r"gpu-(\d+)(?:-|$)")


def devices_of(site: context.DriverContext, boot: str) -> Mapping[str, tuple[port.Gpu, devices.Device]]:
    """Return the devices of a boot's prepared claims with their GPUs, by device name. Counters are left out: nothing new is allocated."""
    found: dict[str, tuple[port.Gpu, devices.Device]] = {}
    for grant in site.grants():
        minor, uuid = _MINOR.match(grant.device.name), grant.intent.get("gpu")
        address, product = grant.device.attributes.get(attributes.PCI_BUS_ID), grant.device.attributes.get("productName")
        if grant.intent.get("boot") != boot or minor is None or not isinstance(uuid, str) or not isinstance(address, str):
            continue
        gpu = port.Gpu(uuid=port.GpuUuid(uuid), minor=int(minor[1]), product_name=str(product), pci_bus_id=address, memory=None)
        found[grant.device.name] = gpu, dataclasses.replace(grant.device, consumes=(), taints=())
    return found


def gpus(site: context.DriverContext, boot: str) -> Mapping[int, port.Gpu]:
    """Return the GPUs of a boot's prepared claims, by minor number."""
    return {gpu.minor: gpu for gpu, _ in devices_of(site, boot).values()}


def completed(
    offered: inventory.Inventory, site: context.DriverContext, boot: str, known: Collection[int], is_kept: Callable[[port.Gpu], bool]
) -> inventory.Inventory:
    """Return the inventory with the claimed devices of kept GPUs whose minor number is not known."""
    missing = tuple(device for gpu, device in devices_of(site, boot).values() if gpu.minor not in known and is_kept(gpu))
    return dataclasses.replace(offered, devices=(*offered.devices, *missing)) if missing else offered
