"""The author's contract, page one: what most DRA drivers need.

A driver is one class:

``discover()``       return the devices that the node has now. A pure read; called at start, on change and at intervals.
``prepare(grant)``   make one granted device usable for one claim; return what the container needs.
``unprepare(grant)`` undo it.
``plan(grant)``      optional: choose identities (a class id, a name) before hardware is touched; ``planned`` returns those in use.
``watch(context)``   optional: check the hardware once; the framework calls it at intervals. ``context`` reports health, taints and events.
``start(context)``   optional: start what runs in the background (a socket, a daemon).
``stop()``           optional: stop it.

Page two, ``drakit.core.advanced``, has protocols for the rest: all devices of a claim at once, binding conditions, merged configuration, devices of
several nodes, metrics.

Verbs are plain functions; the framework calls them in threads of its own, several at a time. In a verb, run asynchronous code by ``asyncio.run``.

The framework fetches the claim and checks its UID and allocation; it leaves out results of other drivers; it decodes opaque parameters strictly into
``config_types``; it never runs two verbs for one physical device at once (see ``Device.lock_names``), also across two processes of a rolling update;
it writes every intent and result to disk before it counts; it writes, verifies and removes CDI files; it reports errors in the pod's events.

The author's obligations:

1. ``prepare`` is idempotent: after a crash it may find its own earlier effects, whole or half. With a ``grant.record`` the claim is prepared, and a
   pod may be running with the device: repair what can be repaired without disturbing it, and return the present state. Return an empty record
   where what was made is gone; ``prepare`` then runs again with an empty ``grant.record``, as for the first time. Raise where the device cannot be
   restored for its pods; the claim then stays prepared.
2. ``unprepare`` works from ``grant.device``, ``grant.share_id``, ``grant.intent``, ``grant.admin_access`` and the claim's UID alone.
   ``grant.record`` is empty if the process died inside ``prepare``; ``grant.config`` is the default, or NoConfig, where the stored parameters no
   longer decode. It may run in a process that did not prepare, and for things already gone; then it succeeds. ``grant.intent`` is empty where the
   journal was lost and no CDI file proves that the device was prepared: then undo only what device and share id alone identify as the claim's.
3. A driver never destroys what it did not make.
4. Values handed in are frozen; the driver keeps no claims in memory of its own.
5. Errors name who must act: ConfigError (the user), DeviceGoneError (the operator), DeviceBusyError and RetryError (the kubelet retries). Any other
   error is a bug: it is logged with its trace and reported for that claim only.
6. Two shares of one device do not contradict each other, because one container may have both: a variable whose value belongs to one share has
   ``grant.share_id`` in its name.
"""

import abc
import dataclasses
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
    *("prepare_claim", "bind", "recall", "accepts_config", "merge_configs", "default_config", "cluster_pools", "cluster_device"),
    *("metrics", "diagnose", "leftovers", "remove_leftovers"),
)
"""What the framework calls of a driver: the methods of both pages."""

Config = TypeVar("Config")


class Caller(Protocol):
    """Whoever waits for a verb: the kubelet's call, or the node for ``bind``."""

    def is_waiting(self) -> bool:
        """Return whether the answer is still wanted; False once the call was cancelled or its deadline passed, or the node stops."""

    def seconds_left(self) -> float | None:
        """Return the seconds until the caller stops waiting, 0 or less once it has; None without a deadline. The kubelet waits 45 s."""


class _Patient:
    """A ``Caller`` that waits for ever."""

    def is_waiting(self) -> bool:
        return True

    def seconds_left(self) -> float | None:
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grant(Generic[Config]):
    """One device that is allocated to one claim.

    ``device`` is the flat device as it was when the claim was prepared, also if it is gone now. ``consumed_capacity`` is what the scheduler
    accounted, after rounding: enforce this, not the request. ``config`` is decoded; ``config_source`` names who wrote it (None: defaults),
    ``parameters`` is what they wrote. With ``admin_access`` another claim may hold the device at the same time (a monitor looks at it): show the
    device to the container, and change nothing of it in any verb. ``intent`` is what ``plan`` returned; ``record`` what ``prepare`` returned, empty
    until it has. Only ``recall`` receives ``found``: the edits in the grant's CDI file, None where the file cannot be trusted.

    ``caller`` is who waits for ``prepare`` or ``bind``. The framework asks it between devices. A verb that takes long may ask it too, and raise
    RetryError once nobody waits: then the device is undone, if no earlier device of the claim is finished. Or it may go on: the kubelet calls
    again, and is answered at once. In other verbs it waits for ever.
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
    caller: Caller = dataclasses.field(default=_Patient(), compare=False, repr=False)

    def __post_init__(self) -> None:
        # The journal's records are frozen already; this checks what ``plan`` or ``recall`` just returned.
        if type(self.intent) is not types.MappingProxyType:
            object.__setattr__(self, "intent", _frozen("grant.intent", self.intent))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """The result of ``prepare``: what the container needs, and a small JSON object that the journal keeps.

    ``metadata`` are attributes that programs in containers find beside the device's own (KEP-5304); for drivers with ``device_metadata``.
    """

    edits: cdi_edits.Edits = dataclasses.field(default_factory=cdi_edits.Edits)
    record: records.Record = dataclasses.field(default_factory=records.empty)
    metadata: Mapping[str, devices.AttributeValue] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.edits, cdi_edits.Edits):
            raise TypeError(f"Prepared.edits is {type(self.edits).__name__}; give drakit.Edits(...)")
        object.__setattr__(self, "record", _frozen("Prepared.record", self.record))
        if self.metadata:
            object.__setattr__(self, "metadata", devices.freeze_attributes(self.metadata, "Prepared.metadata"))


def _frozen(field: str, value: Mapping[str, object]) -> records.Record:
    """Return a frozen copy of an author's record; raises TypeError that names the field and the keys below it."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} is {type(value).__name__}; give a mapping with text keys")
    try:
        return records.freeze_record(value)
    except TypeError as error:
        # The text begins with the path below the field.
        raise TypeError(f"{field}{error}") from error


class Driver(abc.ABC, Generic[Config]):
    """Base of every driver; the module's docstring has the contract.

    ``name`` is the driver's name, a DNS subdomain; an instance may set it from its settings. ``node_name`` is the name of the node: the framework
    sets it before it calls a verb, and leaves it empty for ``cluster_pools``, which has no node. ``config_types`` are frozen dataclasses for opaque
    parameters: one, or several that class attributes ``api_version`` and ``kind`` tell apart. The first one's defaults apply where nothing is
    configured. With ``device_metadata`` programs in containers find the attributes of their devices in files (KEP-5304). ``volatile`` declares that
    nothing the driver makes outlives the node's kernel, however that ends (reboot, crash, power cut): then no claim waits for the disk. Leave it
    False where a file, a flash or a switch keeps anything; no test can check it. ``watch_interval`` is the number of seconds between two calls of
    ``watch``, ``watch_retry`` the shortest and the longest pause after an error of it; an instance may set its own. The names of the driver's own
    metrics begin with ``metrics_prefix``.
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
        """Return the devices there are now; raises HardwareError when the hardware cannot be read (the last inventory then stays published)."""

    @abc.abstractmethod
    def prepare(self, grant: Grant[Config]) -> Prepared:
        """Make the device usable for the claim. Idempotent; see obligations 1 to 6 of the contract."""

    def unprepare(self, grant: Grant[Config]) -> None:
        """Undo ``prepare``; succeeds when there is nothing to undo. Default: does nothing."""

    def plan(self, grant: Grant[Config]) -> records.Record:  # noqa: ARG002 - the default needs nothing of it
        """Return the identities chosen before hardware is touched; the journal stores them, then ``grant.intent`` has them.

        May read hardware, never change it. Default: none.
        """
        return types.MappingProxyType({})

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        """Return what ``plan`` chose for the device's other grants that are not undone yet, also those of the same claim; for use in ``plan``.

        The framework holds the device's locks then, so no other ``plan`` runs for it. Cost grows with the device's grants, not with the node's.
        Empty without a node.
        """
        return () if self._planned is None else self._planned(device)

    def watch(self, context: "contexts.DriverContext") -> None:
        """Check the hardware once, and report by ``context`` what is wrong and what is right again. Default: nothing is watched.

        The framework calls it in a thread of its own, after ``start``, and again ``watch_interval`` seconds after each return. ``stop`` is
        called once the thread has ended. An error is logged, and the pause before the next call doubles, from the first to the second number of
        ``watch_retry``, until a call returns. A call may wait for events of the hardware instead, if it returns soon after ``context.stopping`` is
        set. Repeat reports freely: an equal one costs nothing.
        """

    def start(self, context: "contexts.DriverContext") -> None:
        """Start background work; called once, after recovery and before the kubelet can call. An error keeps the node from starting."""

    def stop(self) -> None:
        """Stop what ``start`` started, within seconds; called once, after the last verb has returned."""


def watches(author: Driver[Any]) -> bool:
    """Return whether a driver has a ``watch`` of its own."""
    return type(author).watch is not Driver.watch


def made_by(make: Callable[..., object], *settings: object) -> Driver[Any]:
    """Return the driver that ``make`` makes of its settings.

    Raises DrakitError that names the fix where it is no driver, has no valid name or has an async verb.
    """
    try:
        inspect.signature(make).bind(*settings)
    except TypeError as error:
        called = getattr(make, "__name__", "make")
        raise errors.DrakitError(
            f"{called}() {error}; give a function that makes the driver, such as: def make(): return {called}(...)"
        ) from error
    author = make(*settings)
    if not isinstance(author, Driver):
        given = f"the class {author.__name__}" if isinstance(author, type) else type(author).__name__
        raise errors.DrakitError(
            f"{getattr(make, '__name__', 'make')}() returns {given}; return an object whose class extends drakit.Driver"
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
    """Raise DrakitError that names the fix where a driver's class has no valid name or an async verb."""
    names.check_driver(kind.name, f"{kind.__name__}.name")
    if problem := _async_verb(kind):
        raise errors.DrakitError(problem)


def _async_verb(kind: type[Driver[Any]]) -> str:
    """Say which verb nobody would await, and the fix; empty where there is none."""
    for verb in VERBS:
        if inspect.iscoroutinefunction(getattr(kind, verb, None)):
            return (
                f"{kind.__name__}.{verb} is async, and drakit calls verbs in threads of its own; "
                f"write def {verb}(...), and asyncio.run(...) in it around what is asynchronous"
            )
    return ""


def open_driver(author: Driver[Any], planned: Callable[[devices.Device], Sequence[records.Record]]) -> None:
    """Check a driver's verbs and ``config_types``, and give it the answer of ``planned``; the framework calls it.

    Raises TypeError naming what is wrong.
    """
    if problem := _async_verb(type(author)):
        raise TypeError(problem)
    opaque_parameters.check_types(author.config_types, f"{type(author).__name__}.config_types")
    author._planned = planned  # noqa: SLF001 - the framework and its base class are one
