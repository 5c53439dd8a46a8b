"""drakit: write a Kubernetes DRA node driver as one class.

These names are the public API for driver authors, which drakit's own GPU and NIC drivers use too. The contract is in ``drakit.core.driver``.
Besides, ``drakit.machines`` and ``drakit.tables`` have mock machines and the reader of their files, ``drakit.wire`` JSON by schema,
``drakit.settings`` types of settings, ``drakit.mountinfo`` the reader of mounts, ``drakit.numa`` that of NUMA nodes, ``drakit.pci`` reads
facts about PCI functions, ``drakit.vfio`` passes them to virtual machines, and ``drakit.testing`` is the test kit. All other modules are internal.
"""

import types as _types
import typing as _typing
from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import TypeVar as _TypeVar
from typing import overload as _overload

from drakit.core import arguments as _arguments
from drakit.core.advanced import (
    Binder,
    ClaimChecker,
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
    NotOffered,
    PodChecker,
    Reclaimer,
    RecordUpgrade,
    Removable,
    Selective,
    Verdict,
    Withholder,
)
from drakit.core.backoff import Backoff
from drakit.core.capacity import Capacity, CapacityValue, RequestPolicy, ValidRange
from drakit.core.claim import ClaimRef, ConfigSource, OpaqueConfig
from drakit.core.claim_status import Condition, DeviceStatus, NetworkStatus
from drakit.core.config import Rules
from drakit.core.context import DriverContext, Event, EventType, Health, HealthReport, StopSignal
from drakit.core.device import (
    CONSUMPTIONS_MAX,
    COUNTERS_MAX,
    TAINTS_MAX,
    AttributeValue,
    CounterConsumption,
    CounterSet,
    Device,
    Taint,
    TaintEffect,
    Version,
    truncate_text,
)
from drakit.core.driver import Caller, Driver, Grant, NoConfig, Prepared
from drakit.core.edits import DeviceNode, Edits, Hook, HookName, Mount, NetDevice
from drakit.core.errors import (
    ApiError,
    CallerGoneError,
    ClaimError,
    ClaimFault,
    ConfigError,
    DeviceBusyError,
    DeviceGoneError,
    DrakitError,
    HardwareError,
    InventoryError,
    JournalError,
    LockedError,
    QuantityError,
    ReleaseDeferredError,
    RetryError,
    SettingsError,
)
from drakit.core.inventory import ClusterPool, ConsumptionMixin, CounterSetMixin, DeviceMixin, Inventory, Mixins
from drakit.core.names import ClaimUid, ShareId, is_label, is_subdomain, is_uid
from drakit.core.node_resources import NodeResource
from drakit.core.ports import Intents, PodPhase, PodRequest, PodState, PodStore, no_intents
from drakit.core.quantity import ONE, ZERO, Amount, Format, Quantity
from drakit.core.records import EMPTY as EMPTY_RECORD
from drakit.core.records import Json, Record, freeze_record
from drakit.core.records import thaw as thaw_record
from drakit.core.slices.node_selection import (
    HOSTNAME,
    AllNodes,
    DeviceNodes,
    NodeSelector,
    OneNode,
    Operator,
    PerDevice,
    PoolNodes,
    Requirement,
)
from drakit.core.specs import ClaimSpec, ConfigSpec, PodSpec, RequestSpec, RequestUse
from drakit.families import Family, Right, Site, family
from drakit.serving.accepting import Cause as OverloadCause
from drakit.serving.accepting import Overload
from drakit.texts import cut as cut_text

if _typing.TYPE_CHECKING:
    from structlog.stdlib import BoundLogger as _Logger

    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Return ``__version__`` when it is first read, because reading it doubles the time of ``import drakit``."""
        if name != "__version__":
            raise AttributeError(f"module 'drakit' has no attribute {name!r}")
        import importlib.metadata  # noqa: PLC0415 - see above

        return importlib.metadata.version("drakit")


_Settings = _TypeVar("_Settings")


def get_logger(name: str) -> "_Logger":
    """Return the logger of one module, ``_log = drakit.get_logger(__name__)``, for lines such as ``_log.info("board opened", device=name)``.

    It is a logger of structlog. Level and format are those of drakit's own lines, at the time of each line.
    """
    from drakit.telemetry import logs  # noqa: PLC0415 - not needed by those who only import values

    return logs.get_logger(name)


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
@_arguments.checked_call
def run(
    make: _Callable[..., Driver[_Any]],
    *,
    settings: type[_Any] | None = None,
    group: str = "",
    commands: _Mapping[str, _Callable[..., None]] = _types.MappingProxyType({}),
) -> None:
    """Run the command line of the driver that ``make`` returns, and end the process.

    The commands are run, slices, show, prepare, unprepare, uninstall-node, journal, doctor and webhook, with drakit-tools lint, and publish for a
    driver with pools of its own. ``settings`` is a frozen dataclass of the driver's own settings, which ``make`` then receives. They are the group
    ``group`` of the settings file, by default the first label of the driver's name: ``ssd.device`` in the file and in ``--set``, ``SSD_DEVICE`` in
    the environment. ``commands`` adds sub-commands by name. Each is a function for typer, whose first parameter is the settings, if there are any.
    """
    import drakit_command  # noqa: PLC0415 - not needed by those who only import values, as the command line's libraries

    with drakit_command.without_collections():
        from drakit.cli import driver_program  # noqa: PLC0415

    driver_program.serve(make, extras=driver_program.Extras(settings=settings, group=group, commands=commands))


__all__ = [
    "CONSUMPTIONS_MAX",
    "COUNTERS_MAX",
    "EMPTY_RECORD",
    "HOSTNAME",
    "ONE",
    "TAINTS_MAX",
    "ZERO",
    "AllNodes",
    "Amount",
    "ApiError",
    "AttributeValue",
    "Backoff",
    "Binder",
    "Caller",
    "CallerGoneError",
    "Capacity",
    "CapacityValue",
    "ClaimChecker",
    "ClaimDriver",
    "ClaimError",
    "ClaimFault",
    "ClaimRef",
    "ClaimSpec",
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
    "ConfigSpec",
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
    "Family",
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
    "Intents",
    "Inventory",
    "InventoryError",
    "JournalError",
    "Json",
    "Leftover",
    "LockedError",
    "Metric",
    "MetricsProvider",
    "Mixins",
    "Mount",
    "NetDevice",
    "NetworkStatus",
    "NoConfig",
    "NodeResource",
    "NodeSelector",
    "NotOffered",
    "OneNode",
    "OpaqueConfig",
    "Operator",
    "Overload",
    "OverloadCause",
    "PerDevice",
    "PodChecker",
    "PodPhase",
    "PodRequest",
    "PodSpec",
    "PodState",
    "PodStore",
    "PoolNodes",
    "Prepared",
    "Quantity",
    "QuantityError",
    "Reclaimer",
    "Record",
    "RecordUpgrade",
    "ReleaseDeferredError",
    "Removable",
    "RequestPolicy",
    "RequestSpec",
    "RequestUse",
    "Requirement",
    "RetryError",
    "Right",
    "Rules",
    "Selective",
    "SettingsError",
    "ShareId",
    "Site",
    "StopSignal",
    "Taint",
    "TaintEffect",
    "ValidRange",
    "Verdict",
    "Version",
    "Withholder",
    "cut_text",
    "family",
    "freeze_record",
    "get_logger",
    "is_label",
    "is_subdomain",
    "is_uid",
    "no_intents",
    "run",
    "thaw_record",
    "truncate_text",
]
