"""The author's contract: what a DRA driver written on drakit is, and what it is handed.

A driver is one class with three verbs, and optional ones:

``discover()``      what hardware is there now. A pure read; called at start, on change and at intervals.
``prepare(grant)``  make one granted device usable for one claim, say what the container needs.
``unprepare(grant)``undo it.
``plan(grant)``     optional: choose identities (a class id, a name) before hardware is touched; ``promised`` says which are taken.
``bind(grant)``     optional: make a device with binding conditions ready, before the pod is bound to this node.
``recall(grant)``   optional: what ``plan`` must have chosen for a claim of this boot whose memory was lost.
``fits(device, config)`` optional: whether a configuration that names no request is meant for this device.
``settle(configs)``  optional: the parameters that count, where several configurations apply to one grant.
``cluster_device(pool, name)`` optional: a device of a pool that belongs to no single node, of which this node is a part.
``start(site)``     optional: begin what runs beside the verbs (a watch of the hardware, a socket of one's own); ``site`` has the calls for it.
``stop()``          optional: end it.
``measure()``       optional: numbers for the metrics, read when somebody asks.

What is done for the author: the claim is fetched, its UID and allocation checked; results of other drivers are left out; opaque parameters are
decoded strictly into ``config_type``; calls for one physical device never overlap (see ``Device.lock_names``), also across two processes of a
rolling update; every intent and result is on disk before it counts; CDI files are written, verified and removed; errors reach the pod's events.

What the author owes:

1. ``prepare`` is idempotent: it may find its own earlier effects, whole or half, after a crash. With a ``grant.record`` the claim is prepared, and
   a pod may be running with the device: repair what can be repaired without disturbing it, and return what is true now. Return an empty record
   where what was made is gone; ``prepare`` is then called again with an empty ``grant.record``, as for the first time. Raise where the device cannot
   be given back to its pods; the claim then stays prepared.
2. ``unprepare`` works from ``grant.device``, ``grant.share_id``, ``grant.intent``, ``grant.admin_access`` and the claim's UID alone:
   ``grant.record`` is empty if the process died inside ``prepare``; ``grant.config`` is the default, or NoConfig, where what was written no longer
   decodes. It may run in a process that did not prepare, and for things already gone; then it succeeds. ``grant.intent`` is empty where the
   journal was lost and no CDI file says that the device was prepared: then nothing needs to be undone but what device and share id alone say is
   the claim's.
3. What the driver did not make it never destroys.
4. Values handed in are frozen; the driver keeps no memory of claims of its own.
5. Errors say who must act: ConfigError (the user), DeviceGoneError (operator), DeviceBusyError and RetryError (the kubelet retries). Anything
   else is a bug: it is logged with its trace and reported for that claim only.
6. What two shares of a device tell a container agrees, because one container may have both: a variable whose value is a share's own has
   ``grant.share_id`` in its name.
"""

import abc
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from drakit.core import claim as claims
from drakit.core import decoding, errors, inventory, names, quantity, records
from drakit.core import device as devices
from drakit.core import edits as cdi_edits

if TYPE_CHECKING:
    from drakit.core import context


@dataclasses.dataclass(frozen=True)
class NoConfig:
    """The configuration of a driver that takes none: any opaque parameter is refused."""


Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grant(Generic[Config]):
    """One device given to one claim.

    ``device`` is the flat device as it was when the claim was prepared, also if it is gone now. ``consumed_capacity`` is what the scheduler
    accounted, after rounding: enforce this, not the request. ``config`` is decoded; ``config_source`` says who wrote it (None:
    defaults), ``parameters`` what was written. With ``admin_access`` the device may be another claim's at the same time (a monitor looks at it): show
    it to the container, and change nothing of it, neither in ``prepare`` nor in ``bind`` nor in ``unprepare``.
    ``intent`` is what ``plan`` returned; ``record`` what ``prepare`` returned, empty until it has. ``found`` is for ``recall`` alone: the edits that
    the grant's CDI file holds, None where the file cannot be believed.
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

    def __post_init__(self) -> None:
        # What the journal gives is frozen already; what ``plan`` or ``recall`` just returned is found out here, while its name is known.
        if type(self.intent) is not types.MappingProxyType:
            object.__setattr__(self, "intent", _frozen("grant.intent", self.intent))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """Result of ``prepare``: what the container needs, and a small JSON object to remember."""

    edits: cdi_edits.Edits = dataclasses.field(default_factory=cdi_edits.Edits)
    record: records.Record = dataclasses.field(default_factory=records.empty)

    def __post_init__(self) -> None:
        if not isinstance(self.edits, cdi_edits.Edits):
            raise TypeError(f"Prepared.edits is {type(self.edits).__name__}; give drakit.Edits(...)")
        object.__setattr__(self, "record", _frozen("Prepared.record", self.record))


def _frozen(field: str, value: Mapping[str, object]) -> records.Record:
    """What an author gave to be remembered; raises TypeError that names the field and the keys below it."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} is {type(value).__name__}; give a mapping with text keys")
    try:
        return records.freeze_record(value)
    except TypeError as error:
        # The text begins with the path below the field.
        raise TypeError(f"{field}{error}") from error


class Driver(abc.ABC, Generic[Config]):
    """Base of every driver; see the module's docstring for the contract.

    ``name`` is the driver's name, a DNS subdomain. ``config_types`` are frozen dataclasses for opaque parameters: one, or several told apart by
    class attributes ``api_version`` and ``kind``. The first one's defaults are used where nothing is configured. With ``device_metadata`` the
    programs in containers find the attributes of their devices in files (KEP-5304). ``volatile`` says that nothing the driver makes outlives
    the node's kernel, however that ends (reboot, crash, power cut): then no claim waits for the disk. Leave it False where a file, a flash or a
    switch keeps anything; no test can tell. What a process leaves when it dies is found either way.
    """

    name: str
    config_types: ClassVar[tuple[type[object], ...]] = (NoConfig,)
    device_metadata: ClassVar[bool] = False
    volatile: ClassVar[bool] = False
    _promised: Callable[[devices.Device], Sequence[records.Record]] | None = None

    @abc.abstractmethod
    def discover(self) -> inventory.Inventory:
        """What is there now; raises HardwareError when it cannot be read (the last inventory then stays published)."""

    @abc.abstractmethod
    def prepare(self, grant: Grant[Config]) -> Prepared:
        """Make the device usable for the claim. Idempotent; see the module's obligations 1 to 5."""

    def unprepare(self, grant: Grant[Config]) -> None:
        """Undo ``prepare``; succeeds when there is nothing to undo. Default: nothing was done."""

    def plan(self, grant: Grant[Config]) -> records.Record:  # noqa: ARG002 - the default needs nothing of it
        """Identities chosen before hardware is touched; stored durably, then passed back in ``grant.intent``. May read hardware, never change it."""
        return types.MappingProxyType({})

    def promised(self, device: devices.Device) -> Sequence[records.Record]:
        """What ``plan`` has chosen for other grants of this device that are not undone yet, those of the same claim included; for use in ``plan``.

        The device's locks are held then, so nobody else is planning for it. Costs what the device's grants cost, not all of the node. While a lost
        journal is made good, ``plan`` is told too what ``recall`` says of claims that are not known yet. Empty for a driver that no node has opened.
        """
        return () if self._promised is None else self._promised(device)

    @property
    def binds(self) -> bool:
        """Whether the driver makes devices ready by a ``bind`` of its own."""
        return type(self).bind is not Driver.bind

    def bind(self, grant: Grant[Config]) -> None:
        """Make a device with binding conditions ready for the claim (KEP-5007): called once it is allocated, before its pod is bound.

        The first of ``grant.device.binding_conditions`` becomes True when this returns. ConfigError and DeviceGoneError are final: ``unprepare`` is
        called, the first failure condition becomes True with the error's text, and the scheduler looks for another device. After any other error this
        is called again, after a RetryError when it says. It may take minutes. It is idempotent like ``prepare``, and is called right before each
        ``prepare`` too; what is bound and never prepared is undone by ``unprepare``. A driver without it states binding conditions itself, by
        ``DriverContext.status``. Only devices of the node's own pool are bound.
        """

    def recall(self, grant: Grant[Config]) -> records.Record:  # noqa: ARG002 - the default needs nothing of it
        """The intent that ``plan`` must have chosen for a grant that was prepared in this boot, when the journal that held it was lost.

        Asked only for grants whose CDI file is still there; where the claim itself is gone, consumed capacity and configuration are unknown. Then
        ``prepare`` (for a claim in use) or ``unprepare`` is called with it. May read hardware, never change it; ``promised`` is what is known
        already. Where ``plan`` is a function of the grant alone, this is ``self.plan(grant)``. Where only the container was told, ``grant.found`` has
        it: what ``prepare`` gave as edits, None where the file cannot be believed. It may have been edited by hand all the same, so check what
        it says. ConfigError, DeviceGoneError and DeviceBusyError say that it cannot be: a claim in use then stays unknown, and its hardware as it
        is, until it can; one that has ended is unprepared with an empty intent. Default: an empty intent.
        """
        return types.MappingProxyType({})

    def fits(self, device: devices.Device, config: object) -> bool:  # noqa: ARG002
        """Whether a configuration that names no request is meant for this device. Default: yes."""
        return True

    def settle(self, configs: Sequence[claims.OpaqueConfig]) -> records.Record:
        """The parameters that count, of the configurations that apply to a grant: those of classes before those of the claim, later ones last.

        All have been decoded. For drivers with fields that only an admin may set: they refuse them in a claim (ConfigError) and let the class's stand
        beside what the claim says. The result is decoded in its turn and is what the journal keeps. Default: the last one, whole.
        """
        return configs[-1].parameters

    def default_config(self, device: devices.Device) -> object:  # noqa: ARG002
        """The configuration of a grant for which nobody wrote one; raises ConfigError where one is required."""
        try:
            return self.config_types[0]()
        except TypeError as error:
            kind = self.config_types[0].__name__
            raise errors.ConfigError(
                f"{self.name} needs parameters ({kind}) for this device; write them in the claim", field="config"
            ) from error

    def cluster_device(self, pool: str, name: str) -> devices.Device | None:  # noqa: ARG002 - the default serves no such pool
        """A device of a pool that no single node publishes (see ``core.inventory``), if this node has a part of it that ``prepare`` can make usable.

        The device is whole, as it is published, and flat; ``prepare`` is called for it on every node where a pod of the claim runs, and does this
        node's part. None means that this node has no part in it; the claim is then refused. Default: None.
        """
        return None

    def start(self, site: "context.DriverContext") -> None:
        """Begin what runs beside the verbs; called once, after recovery and before the kubelet can call. An error keeps the node from starting."""

    def measure(self) -> "Sequence[context.Metric]":
        """Numbers of this driver's own, read at every request for metrics and from any thread; what it raises leaves them out."""
        return ()

    def stop(self) -> None:
        """End what ``start`` began, within seconds; called once, after the last verb has returned."""


def open_books(author: Driver[Any], promised: Callable[[devices.Device], Sequence[records.Record]]) -> None:
    """Check what a driver says of itself, and let its ``promised`` answer; the framework's part. Raises TypeError naming what is wrong."""
    decoding.check_types(author.config_types, f"{type(author).__name__}.config_types")
    author._promised = promised  # noqa: SLF001 - the framework and its base class are one
