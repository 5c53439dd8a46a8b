"""drakit: write a Kubernetes DRA node driver as one class.

These are the names a driver's author needs; the contract is in ``drakit.core.driver``. Everything else in the package is drakit's own.
"""

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

__all__ = [
    "AttributeValue",
    "Capacity",
    "ClaimRef",
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
    "DrakitError",
    "Driver",
    "Edits",
    "Grant",
    "HardwareError",
    "Hook",
    "HookName",
    "Inventory",
    "InventoryError",
    "Mixins",
    "Mount",
    "NetDevice",
    "NoConfig",
    "Prepared",
    "Quantity",
    "Record",
    "RequestPolicy",
    "RetryError",
    "Taint",
    "TaintEffect",
    "ValidRange",
    "Version",
]
