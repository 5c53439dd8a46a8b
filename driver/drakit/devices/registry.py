"""The device families by name, and how the driver of each is made.

A family is imported when it is asked for, so that the library of one need not be installed to run another.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit.devices import machines

Intents = Callable[[], Iterable[records.Record]]


def no_intents() -> Iterable[records.Record]:
    """The intents of a node on which nothing was prepared."""
    return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What a driver is to be.

    ``node`` is the node's name, ``driver_name`` replaces the family's own, ``machine`` takes the place of real hardware. ``intents`` gives the
    intents of all grants this driver's journal knows, so that it can tell what it made from what others made. ``netns`` (a network namespace's name)
    and ``options`` (the family's own settings, such as NicSettings) are for families that have them.
    """

    node: str
    driver_name: str | None = None
    machine: machines.Choice | None = None
    intents: Intents = no_intents
    netns: str | None = None
    options: object = None


def build(family: str, order: Order) -> drivers.Driver[Any]:
    """The driver of a family; raises SettingsError for an unknown family or machine, HardwareError when the hardware cannot be opened."""
    if family not in FAMILIES:
        raise errors.SettingsError(f"no device family {family!r}; known are {', '.join(FAMILIES)}", key="family")
    return FAMILIES[family](order)


def _gpu(order: Order) -> drivers.Driver[Any]:
    from drakit.devices.gpu import driver, mock  # noqa: PLC0415 - a family is imported when it is asked for

    if order.machine is None:
        raise errors.SettingsError("real GPUs are not supported yet; name a mock machine", key="mock.machine")
    return driver.GpuDriver(mock.MockGpus(order.machine), name=order.driver_name or driver.NAME, intents=order.intents)


def _nic(order: Order) -> drivers.Driver[Any]:
    from drakit.devices.nic import driver, mock, netlink, port, settings  # noqa: PLC0415 - a family is imported when it is asked for

    options = order.options
    if options is not None and not isinstance(options, settings.NicSettings):
        raise TypeError(f"the nic family takes NicSettings, not {type(options).__name__}")
    hardware: port.Port = netlink.KernelPort(order.netns) if order.machine is None else mock.MockPort(order.machine)
    return driver.NicDriver(hardware, node=order.node, settings=options, name=order.driver_name or driver.NAME)


FAMILIES: Mapping[str, Callable[[Order], drivers.Driver[Any]]] = {"gpu": _gpu, "nic": _nic}
