"""The author's contract, page one: what most DRA drivers need.

A driver is one class:

``discover()``       return the devices that the node has now. It only reads; the framework calls it at start, on change and at intervals.
``prepare(grant)``   make one granted device usable for one claim; return what the container needs.
``unprepare(grant)`` undo ``prepare``.
``plan(grant)``      optional: choose identities (a class id, an engine) before hardware is touched; ``planned`` returns those in use.
``watch(context)``   optional: check the hardware once; the framework calls it at intervals. ``context`` reports health, taints and events.
``start(context)``   optional: start background work (a socket, a daemon).
``stop()``           optional: stop the background work.

Page two, ``drakit.core.advanced``, has protocols for the rest: all devices of a claim at once, binding conditions, merged configuration, devices of
several nodes, metrics.

These methods are plain functions. The framework calls them in its own threads, several at a time. To run asynchronous code in one, call
``asyncio.run``. To run another program, use ``subprocess`` with a timeout. For ``multiprocessing`` use the start method ``spawn`` or ``forkserver``:
a child of ``os.fork`` or of the start method ``fork`` has copies of the locks that other threads held during the fork, and may wait for them
for ever. A forked child must end before its verb returns.

What the framework does:

- It fetches the claim, checks its UID and allocation, and leaves out results of other drivers.
- It decodes opaque parameters strictly into ``config_types``.
- It never runs two verbs for one physical device at once (see ``Device.lock_names``), not even in two processes of a rolling update.
- It writes every intent and result to the journal before it relies on it.
- It writes, verifies and removes CDI files.
- It reports errors in the pod's events.

The author's obligations:

1. ``prepare`` is idempotent. After a crash it may find its own earlier effects, complete or partial. If ``grant.record`` is not empty, the claim is
   prepared and a pod may be using the device. Then repair what you can without disturbing the pod, and return the present state. If the hardware is
   gone, return an empty record; ``prepare`` then runs again with an empty ``grant.record``, as for the first time. If the device cannot be restored
   for its pods, raise; the claim stays prepared.
2. ``unprepare`` uses only ``grant.device``, ``grant.share_id``, ``grant.intent``, ``grant.admin_access`` and the claim's UID. It may run in another
   process than ``prepare``. It succeeds if there is nothing left to undo. ``grant.record`` is empty if the process died inside ``prepare``.
   ``grant.config`` is the default, or NoConfig, if the stored parameters no longer decode. ``grant.intent`` is empty if the journal was lost and no
   CDI file proves that the device was prepared. Then undo only what device and share id alone identify as the claim's.
3. A driver never destroys what it did not create.
4. Arguments are frozen. The driver keeps no claims in its own memory.
5. The type of an error names who must act: ConfigError (the user), DeviceGoneError (the operator), DeviceBusyError and RetryError (the kubelet
   retries). Any other error is a bug: the framework logs it with its trace and reports it for that claim only.
6. Two shares of one device do not conflict, because one container may have both. If an environment variable belongs to one share, its name contains
   ``grant.share_id``.
"""

import abc
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import edits as cdi_edits
from drakit.core import errors, inventory, names, quantity, records
from drakit.core.encoding import opaque_parameters

if TYPE_CHECKING:
    from drakit.core import context as contexts


@dataclasses.dataclass(frozen=True)
class NoConfig:
    """The configuration of a driver that accepts no parameters."""


VERBS = (
    *("discover", "prepare", "unprepare", "plan", "watch", "start", "stop"),
    *(
        "prepare_claim",
        "bind",
        "recall",
        "upgrade_intent",
        "upgrade_record",
        "accepts_config",
        "merge_configs",
        "default_config",
        "cluster_pools",
        "cluster_device",
    ),
    *("metrics", "diagnose", "not_offered", "withheld_devices", "leftovers", "remove_leftovers", "unclaimed", "reclaim"),
    *("overlaps", "edits_revision", "check_claim", "check_pod"),
)
"""The methods of a driver that the framework calls, of both pages."""

Config = TypeVar("Config")


class Caller(Protocol):
    """The caller of a verb: the kubelet's call, or the node for ``bind``."""

    def is_waiting(self) -> bool:
        """Return whether the caller still waits: False after a cancelled call, after its deadline, or when the node stops."""

    def seconds_left(self) -> float | None:
        """Return the seconds until the caller stops waiting, 0 or less afterwards; None without a deadline. The kubelet waits 45 s."""


class _NoDeadline:
    """A ``Caller`` that waits without a deadline."""

    def is_waiting(self) -> bool:
        return True

    def seconds_left(self) -> float | None:
        return None


NO_DEADLINE = _NoDeadline()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grant(Generic[Config]):
    """One device that is allocated to one claim.

    ``device`` is the flat device at the time when the claim was prepared, even if it is gone now. ``consumed_capacity`` is what the scheduler
    accounted, after rounding: enforce this, not the request. ``config`` is decoded, ``config_source`` is who wrote it (None: defaults), and
    ``parameters`` is its JSON object. ``intent`` is what ``plan`` returned. ``record`` is what ``prepare`` returned, empty before. Only ``recall``
    receives ``found``: the edits in the grant's CDI file, or None if the file cannot be trusted.

    With ``admin_access`` another claim may hold the device at the same time, for example because a monitor reads it. Then show the device to the
    container, and do not change it in any verb.

    ``caller`` waits for ``prepare`` or ``bind``. The framework checks it between devices. A slow verb may check it too. If the caller has gone, the
    verb may continue: the kubelet calls again and gets the result at once. Or it raises RetryError: the framework then undoes the device, unless an
    earlier device of the claim is finished. In other verbs ``caller`` waits without a deadline.
    """

    claim: claims.ClaimRef
    request: str
    pool: str
    device: devices.Device
    config: Config
    config_source: claims.ConfigSource | None = None
    parameters: records.Record | None = None
    share_id: names.ShareId | None = None
    consumed_capacity: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    admin_access: bool = False
    intent: records.Record = dataclasses.field(default_factory=records.empty)
    record: records.Record = dataclasses.field(default_factory=records.empty)
    found: cdi_edits.Edits | None = None
    caller: Caller = dataclasses.field(default=NO_DEADLINE, compare=False, repr=False)

    def __post_init__(self) -> None:
        # The journal's records are frozen already; this checks what ``plan`` or ``recall`` just returned.
        if type(self.intent) is not types.MappingProxyType:
            object.__setattr__(self, "intent", frozen("grant.intent", self.intent))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """The result of ``prepare``: what the container needs, and a small JSON object that the journal keeps.

    ``metadata`` adds attributes to the device's own for programs in containers (KEP-5304). It needs ``device_metadata`` in the driver's class.
    """

    edits: cdi_edits.Edits = dataclasses.field(default_factory=cdi_edits.Edits)
    record: records.Record = dataclasses.field(default_factory=records.empty)
    metadata: Mapping[str, devices.AttributeValue] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.edits, cdi_edits.Edits):
            raise TypeError(f"Prepared.edits is {type(self.edits).__name__}; give drakit.Edits(...)")
        object.__setattr__(self, "record", frozen("Prepared.record", self.record))
        if not isinstance(self.metadata, Mapping):
            raise TypeError(f"Prepared.metadata is {type(self.metadata).__name__}; give a mapping of attributes by name")
        if self.metadata:
            object.__setattr__(self, "metadata", devices.freeze_attributes(self.metadata, "Prepared.metadata"))


def frozen(field: str, value: Mapping[str, object]) -> records.Record:
    """Return a frozen copy of an author's record. Raises TypeError, which names the field and the keys below it."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} is {type(value).__name__}; give a mapping with text keys")
    try:
        return records.freeze_record(value)
    except TypeError as error:
        # The text begins with the path below the field.
        raise TypeError(f"{field}{error}") from error


class Driver(abc.ABC, Generic[Config]):
    """Base of every driver; the module's docstring has the contract.

    - ``name``: the driver's name, a DNS subdomain. An instance may set it from its settings.
    - ``node_name``: the node's name. The framework sets it before it calls a method; it is empty for ``cluster_pools``.
    - ``config_types``: frozen dataclasses for opaque parameters. Several types differ by their class attributes ``api_version`` and ``kind``; the
      pairs in ``aliases`` mean the same type. Without configuration the first one's defaults apply.
    - ``device_metadata``: whether programs in containers find the attributes of their devices in files (KEP-5304).
    - ``volatile``: whether nothing that the driver creates survives a reboot, crash or power cut of the node. Then no claim waits for the disk, and
      the first start in a new boot unprepares every claim of an earlier one. Leave it False if a file, a flash or a switch keeps anything. No test
      can check it.
    - ``watch_interval``: seconds between two calls of ``watch``. An instance may set its own.
    - ``watch_retry``: the shortest and the longest pause after an error of ``watch``, in seconds. An instance may set its own.
    - ``metrics_prefix``: the first part of the names of the driver's own metrics.
    """

    name: str
    node_name: str = ""
    config_types: ClassVar[tuple[type[object], ...]] = (NoConfig,)
    device_metadata: ClassVar[bool] = False
    volatile: ClassVar[bool] = False
    watch_interval: float = 10.0
    watch_retry: tuple[float, float] = (1.0, 300.0)
    metrics_prefix: ClassVar[str] = "drakit"
    _planned: Callable[[devices.Device], Sequence[records.Record]] | None = None

    @abc.abstractmethod
    def discover(self) -> inventory.Inventory:
        """Return the present devices.

        Raises HardwareError if the hardware cannot be read; the last inventory then stays published. Raises RetryError while the hardware is not
        ready, for example because its kernel driver is not loaded. Then no device is offered, and the framework calls again after the error's time.
        After any error the kubelet is served, so that pods can end. So open the hardware here, not in ``__init__`` or ``start``.
        """

    @abc.abstractmethod
    def prepare(self, grant: Grant[Config]) -> Prepared:
        """Make the device usable for the claim. Idempotent; see obligations 1 to 6 of the contract."""

    def unprepare(self, grant: Grant[Config]) -> None:
        """Undo ``prepare``. Succeeds if there is nothing to undo. By default, do nothing.

        Raises ReleaseDeferredError if the hardware cannot be reached now and no pod can use it meanwhile. Then the pod ends; the claim stays in the
        journal and holds its device, and the framework calls again until that succeeds. After any other error the kubelet retries, and the pod waits.
        """

    def plan(self, grant: Grant[Config]) -> records.Record:  # noqa: ARG002 - the default needs nothing of it
        """Return the identities for a grant, before hardware is touched. The journal stores them, and ``grant.intent`` has them afterwards.

        It may read hardware, but never changes it. By default there are none.
        """
        return types.MappingProxyType({})

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        """Return what ``plan`` chose for all other grants under the device's locks that are not undone yet, also for those of the same claim.

        These are the grants of the device, of every device with a counter set in common (see ``Device.lock_names``), and of such devices that
        ``discover`` no longer returns. Call it in ``plan``. The framework holds the locks then, so no other ``plan`` runs for the same hardware. The
        cost grows with these grants, not with those of the node. Empty without a node.
        """
        return () if self._planned is None else self._planned(device)

    def watch(self, context: "contexts.DriverContext") -> None:
        """Check the hardware once, and report faults and recoveries with ``context``. By default, do nothing.

        The framework calls it in its own thread, after ``start``, and again ``watch_interval`` seconds after each return. It logs an error and
        doubles the pause before the next call, within ``watch_retry``, until a call returns. A call may wait for events of the hardware, if it
        returns soon after ``context.stopping`` is set. The framework calls ``stop`` after the thread has ended. Repeat reports freely: an equal
        report costs nothing.
        """

    def start(self, context: "contexts.DriverContext") -> None:
        """Start background work. Called once, after recovery and before the kubelet can call. The node does not start after an error.

        Not called while the journal has a claim of a newer release, which this one cannot read (``drakit.RecordUpgrade``): the node then serves
        without ``start``, ``watch`` and ``stop``. So a verb must work without what ``start`` started, as in the command ``unprepare``.
        """

    def stop(self) -> None:
        """Stop what ``start`` started, within seconds. Called once, after the last verb has returned."""


def watches(author: Driver[Any]) -> bool:
    """Return whether a driver has a ``watch`` of its own."""
    return type(author).watch is not Driver.watch


def made_by(make: Callable[..., object], *settings: object) -> Driver[Any]:
    """Return the driver that ``make`` creates from its settings.

    Raises DrakitError, which names the fix, if the result is no driver, has no valid name or has an async verb.
    """
    try:
        inspect.signature(make).bind(*settings)
    except TypeError as error:
        maker = getattr(make, "__name__", "make")
        raise errors.DrakitError(
            f"{maker}() {error}; give a function that makes the driver, such as: def make(): return {maker}(...)"
        ) from error
    author = make(*settings)
    if not isinstance(author, Driver):
        returned = f"the class {author.__name__}" if isinstance(author, type) else type(author).__name__
        raise errors.DrakitError(
            f"{getattr(make, '__name__', 'make')}() returns {returned}; return an object whose class extends drakit.Driver"
        )
    field, name = f"{type(author).__name__}.name", getattr(author, "name", None)
    if not isinstance(name, str):
        described = "is missing" if name is None else f"is {type(name).__name__}"
        raise errors.DrakitError(f'{field} {described}; write name = "fpga.example.com", a DNS subdomain of yours, in the class')
    names.check_driver(name, field)
    if problem := _async_verb(type(author)):
        raise errors.DrakitError(problem)
    return author


def check_class(kind: type[Driver[Any]]) -> None:
    """Raise DrakitError, which names the fix, if a driver's class has no valid name or has an async verb."""
    names.check_driver(kind.name, f"{kind.__name__}.name")
    if problem := _async_verb(kind):
        raise errors.DrakitError(problem)


@functools.lru_cache
def _async_verb(kind: type[Driver[Any]]) -> str:
    """Return an error for the first async verb, with the fix; empty if there is none."""
    for verb in VERBS:
        if inspect.iscoroutinefunction(getattr(kind, verb, None)):
            return (
                f"{kind.__name__}.{verb} is async, and drakit calls verbs in threads of its own; "
                f"write def {verb}(...), and run the asynchronous part in it with asyncio.run(...)"
            )
    return ""


def open_driver(author: Driver[Any], planned: Callable[[devices.Device], Sequence[records.Record]]) -> None:
    """Check a driver's verbs and ``config_types``, and set its source of ``planned``. The framework calls it.

    Raises TypeError, which names the fix.
    """
    if problem := _async_verb(type(author)):
        raise TypeError(problem)
    opaque_parameters.check_types(author.config_types, f"{type(author).__name__}.config_types")
    author._planned = planned  # noqa: SLF001 - the framework and its base class are one
