"""An inventory with the taints that were put on its devices from outside of discover(). Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

from drakit.core import device as devices
from drakit.core import inventory


def with_taints(offered: inventory.Inventory, put: Mapping[str, Sequence[devices.Taint]]) -> inventory.Inventory:
    """The same inventory, its devices with these taints too; one of the same key and effect replaces what was discovered.

    Taints of devices that are not there say nothing until they are. Where there would be more than the API takes, the discovered ones give way.
    """
    if not any(item.name in put for item in offered.devices):
        return offered
    return dataclasses.replace(offered, devices=tuple(_tainted(item, put.get(item.name, ())) for item in offered.devices))


def _tainted(item: devices.Device, put: Sequence[devices.Taint]) -> devices.Device:
    if not put:
        return item
    replaced = {(one.key, one.effect) for one in put}
    kept = [one for one in item.taints if (one.key, one.effect) not in replaced]
    return dataclasses.replace(item, taints=(*put, *kept)[: devices.TAINTS_MAX])
