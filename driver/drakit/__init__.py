"""drakit: write a Kubernetes DRA node driver as one class.

These names are the public API for driver authors. The contract is in ``drakit.core.driver``. All other modules are internal.
"""

import types as _types
from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import TypeVar as _TypeVar
from typing import overload as _overload

from drakit.core.advanced import (
    Binder,
    ClaimDriver,
    ClusterDevices,
    ClusterPools,
    ConfigDefaults,
    ConfigFilter,
    ConfigMerger,
    Diagnosable,
    EditsRevision,
    Finding,
    HardwareOverlap,
    IntentRecovery,
    Leftover,
    Metric,
    MetricsProvider,
    Reclaimer,
    Removable,
    Verdict,
)
from drakit.core.capacity import Capacity, CapacityValue, RequestPolicy, ValidRange
from drakit.core.claim import ClaimRef, ConfigSource, OpaqueConfig
from drakit.core.claim_status import Condition, DeviceStatus, NetworkStatus
from drakit.core.context import DriverContext, Event, EventType, Health, HealthReport, StopSignal
from drakit.core.device import AttributeValue, CounterConsumption, CounterSet, Device, Taint, TaintEffect, Version
from drakit.core.driver import Caller, Driver, Grant, NoConfig, Prepared
from drakit.core.edits import DeviceNode, Edits, Hook, HookName, Mount, NetDevice
from drakit.core.errors import (
    ClaimError,
    ConfigError,
    DeviceBusyError,
    DeviceGoneError,
    DrakitError,
    HardwareError,
    InventoryError,
    QuantityError,
    ReleaseDeferredError,
    RetryError,
)
from drakit.core.inventory import ClusterPool, ConsumptionMixin, CounterSetMixin, DeviceMixin, Inventory, Mixins
from drakit.core.names import ClaimUid, ShareId
from drakit.core.quantity import Amount, Format, Quantity
from drakit.core.records import Json, Record
from drakit.core.slices.node_selection import AllNodes, DeviceNodes, NodeSelector, OneNode, Operator, PerDevice, PoolNodes, Requirement

_Settings = _TypeVar("_Settings")


@_overload
def run(make: _Callable[[], Driver[_Any]], *, commands: _Mapping[str, _Callable[..., None]] = ...) -> None: ...
@_overload
def run(
    make: _Callable[[_Settings], Driver[_Any]],
    *,
    settings: type[_Settings],
    group: str = "",
    commands: _Mapping[str, _Callable[..., None]] = ...,
) -> None: ...
def run(
    make: _Callable[..., Driver[_Any]],
    *,
    settings: type[_Any] | None = None,
    group: str = "",
    commands: _Mapping[str, _Callable[..., None]] = _types.MappingProxyType({}),
) -> None:
    """Run the command line of the driver that ``make`` returns, and end the process.

    The commands are run, slices, show, prepare, unprepare, journal, doctor, lint and webhook. ``settings`` is a frozen dataclass of the driver's own
    settings, which ``make`` then receives. They are the group ``group`` of the settings file, by default the first label of the driver's name:
    ``ssd.device`` in the file and in ``--set``, ``SSD_DEVICE`` in the environment. ``commands`` adds sub-commands by name. Each is a function for
    typer, whose first parameter is the settings, if there are any.
    """
    import drakit_command  # noqa: PLC0415 - not needed by those who only import values, as the command line's libraries

    with drakit_command.without_collections():
        from drakit.cli import driver_program  # noqa: PLC0415

    driver_program.serve(make, extras=driver_program.Extras(settings=settings, group=group, commands=commands))


__all__ = [
    "AllNodes",
    "Amount",
    "AttributeValue",
    "Binder",
    "Caller",
    "Capacity",
    "CapacityValue",
    "ClaimDriver",
    "ClaimError",
    "ClaimRef",
    "ClaimUid",
    "ClusterDevices",
    "ClusterPool",
    "ClusterPools",
    "Condition",
    "ConfigDefaults",
    "ConfigError",
    "ConfigFilter",
    "ConfigMerger",
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
    "DeviceNodes",
    "DeviceStatus",
    "Diagnosable",
    "DrakitError",
    "Driver",
    "DriverContext",
    "Edits",
    "EditsRevision",
    "Event",
    "EventType",
    "Finding",
    "Format",
    "Grant",
    "HardwareError",
    "HardwareOverlap",
    "Health",
    "HealthReport",
    "Hook",
    "HookName",
    "IntentRecovery",
    "Inventory",
    "InventoryError",
    "Json",
    "Leftover",
    "Metric",
    "MetricsProvider",
    "Mixins",
    "Mount",
    "NetDevice",
    "NetworkStatus",
    "NoConfig",
    "NodeSelector",
    "OneNode",
    "OpaqueConfig",
    "Operator",
    "PerDevice",
    "PoolNodes",
    "Prepared",
    "Quantity",
    "QuantityError",
    "Reclaimer",
    "Record",
    "ReleaseDeferredError",
    "Removable",
    "RequestPolicy",
    "Requirement",
    "RetryError",
    "ShareId",
    "StopSignal",
    "Taint",
    "TaintEffect",
    "ValidRange",
    "Verdict",
    "Version",
    "run",
]
