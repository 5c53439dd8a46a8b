"""drakit: write a Kubernetes DRA node driver as one class.

These are the names a driver's author needs; the contract is in ``drakit.core.driver``. Everything else in the package is drakit's own.
"""

from collections.abc import Callable as _Callable
from typing import Any as _Any

from drakit.core.attribute import AttributeValue, Version
from drakit.core.claim import ClaimRef, ConfigSource
from drakit.core.counters import CounterConsumption, CounterSet
from drakit.core.device import Device, Taint, TaintEffect
from drakit.core.driver import Driver, Grant, NoConfig, Prepared
from drakit.core.edits import DeviceNode, Edits, Hook, HookName, Mount, NetDevice
from drakit.core.errors import (
    ConfigError,
    DeviceBusyError,
    DeviceGoneError,
    DrakitError,
    HardwareError,
    InventoryError,
    RetryError,
)
from drakit.core.inventory import Inventory
from drakit.core.mixins import ConsumptionMixin, CounterSetMixin, DeviceMixin, Mixins
from drakit.core.policy import Capacity, RequestPolicy, ValidRange
from drakit.core.quantity import Quantity
from drakit.core.records import Record
from drakit.core.site import Condition, DeviceStatus, Health, HealthReport, NetworkStatus, Notice, Site, Weight


def run(make: _Callable[[], Driver[_Any]]) -> None:
    """Be the command line of the driver that ``make`` makes: run, slices, show, prepare, unprepare, journal (see ``--help``). Ends the process."""
    from drakit.cli import author  # noqa: PLC0415 - the command line's libraries are not needed by those who only import values

    author.serve(make)


__all__ = [
    "AttributeValue",
    "Capacity",
    "ClaimRef",
    "Condition",
    "ConfigError",
    "ConfigSource",
    "ConsumptionMixin",
    "CounterConsumption",
    "CounterSet",
    "CounterSetMixin",
    "Device",
    "DeviceBusyError",
    "DeviceGoneError",
    "DeviceMixin",
    "DeviceNode",
    "DeviceStatus",
    "DrakitError",
    "Driver",
    "Edits",
    "Grant",
    "HardwareError",
    "Health",
    "HealthReport",
    "Hook",
    "HookName",
    "Inventory",
    "InventoryError",
    "Mixins",
    "Mount",
    "NetDevice",
    "NetworkStatus",
    "NoConfig",
    "Notice",
    "Prepared",
    "Quantity",
    "Record",
    "RequestPolicy",
    "RetryError",
    "Site",
    "Taint",
    "TaintEffect",
    "ValidRange",
    "Version",
    "Weight",
    "run",
]
