"""The author's contract, page two: optional protocols that a driver implements beside ``drakit.Driver``.

The framework detects each protocol by its methods. Inherit the protocol as well, as in ``class MyDriver(drakit.Driver[C], drakit.Binder[C])``: mypy
then checks the signatures, and reports a class that lacks a method.

``ClaimDriver``           prepare all devices of a claim at once
``Binder``                make a device with binding conditions ready, before the pod is bound to this node
``IntentRecovery``        return what ``plan`` must have chosen for a claim of this boot whose journal was lost
``ConfigFilter``          decide whether a configuration that names no request is meant for a device
``ConfigMerger``          merge several configurations that apply to one grant
``ConfigDefaults``        choose the configuration of a grant without parameters
``ClusterPools``          publish pools that belong to no single node
``ClusterDevices``        prepare this node's part of devices of a pool that belongs to no single node
``MetricsProvider``       add numbers to the metrics
``Diagnosable``           add checks to ``doctor``
``Removable``             list and remove what the driver made on the node beside prepared claims
"""

import abc
import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import inventory, records

Config = TypeVar("Config")


class Verdict(enum.Enum):
    """How it is. ``UNKNOWN``: it could not be looked at from here."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check, with a fix unless the check passed. ``topic`` is the heading that it stands under."""

    topic: str
    subject: str
    verdict: Verdict
    message: str
    fix: str = ""


class ClaimDriver(drivers.Driver[Config]):
    """Base of a driver that prepares all devices of a claim at once, because they belong together: disks of one array, GPUs of one NVLink group."""

    @abc.abstractmethod
    def prepare_claim(self, grants: Sequence[drivers.Grant[Config]]) -> Sequence[drivers.Prepared]:
        """Make all devices that one claim has of this driver usable together; return one result for each grant, in the same order.

        Called in place of ``prepare``, and under the same rules (obligations 1 to 6 of page one): ``plan`` chose an intent for each grant, and the
        journal has them all. A claim with one device comes here too. After an error, RetryError included, the framework calls ``unprepare`` for each
        grant, last one first: let the first call undo what is common, and name that by ``grant.claim.uid`` or the intent, so that each call finds it.
        """

    def prepare(self, grant: drivers.Grant[Config]) -> drivers.Prepared:
        """Prepare a claim of one device."""
        (prepared,) = self.prepare_claim([grant])
        return prepared


@runtime_checkable
class Binder(Protocol[Config]):
    """A driver that makes devices ready before their pod is bound (KEP-5007)."""

    def bind(self, grant: drivers.Grant[Config]) -> None:
        """Make a device with binding conditions ready for the claim; called once it is allocated, before its pod is bound.

        The first of ``grant.device.binding_conditions`` becomes True when this returns. ConfigError and DeviceGoneError are final: the framework
        calls ``unprepare``, the first failure condition becomes True with the error's text, and the scheduler chooses another device. After any other
        error the framework retries, after a RetryError at its time. It may take minutes. It is idempotent like ``prepare``, and runs right before
        each ``prepare`` too; ``unprepare`` undoes what was bound and never prepared. A driver without it sets binding conditions itself, by
        ``DriverContext.set_status``. Only devices of the node's own pools are bound.
        """


@runtime_checkable
class IntentRecovery(Protocol[Config]):
    """A driver whose claims can be restored although ``plan`` chose identities and the journal that held them is lost."""

    def recall(self, grant: drivers.Grant[Config]) -> records.Record:
        """Return the intent that ``plan`` must have chosen for a grant that was prepared in this boot, when the journal that held it was lost.

        Called only for grants whose CDI file is still there; where the claim itself is gone, consumed capacity and configuration are unknown.
        ``prepare`` (for a claim in use) or ``unprepare`` follows with the result. May read hardware, never change it; ``planned`` has what is known
        already. Where ``plan`` is a function of the grant alone, return ``self.plan(grant)``. Where only the container was given the identity,
        ``grant.found`` has it: what ``prepare`` returned as edits, None where the file cannot be trusted. Somebody may have edited it by hand, so
        check it. ConfigError, DeviceGoneError and DeviceBusyError mean that the intent cannot be known: a claim in use is then
        retried, and the driver does not serve meanwhile; one that has ended is unprepared with an empty intent. Without this protocol: an empty
        intent.
        """


@runtime_checkable
class ConfigFilter(Protocol):
    """A driver with several kinds of configuration or device."""

    def accepts_config(self, device: devices.Device, config: object) -> bool:
        """Return whether a configuration that names no request is meant for this device. Without this protocol: yes."""


@runtime_checkable
class ConfigMerger(Protocol):
    """A driver that merges configurations, for example because only an admin may set some fields."""

    def merge_configs(self, configs: Sequence[claims.OpaqueConfig]) -> records.Record:
        """Return the parameters that count, of those that apply to a grant: those of classes before those of the claim, later ones last.

        All have been decoded. To keep a field for admins, raise ConfigError where a claim sets it, and copy the class's value into the result. The
        framework decodes the result and keeps it in the journal. Without this protocol: the last one, whole.
        """


@runtime_checkable
class ConfigDefaults(Protocol):
    """A driver whose default configuration depends on the device."""

    def default_config(self, device: devices.Device) -> object:
        """Return the configuration of a grant without parameters; raises ConfigError where parameters are required.

        Without this protocol: the first of ``config_types`` with its defaults, and ConfigError where that has none.
        """


@runtime_checkable
class ClusterPools(Protocol):
    """A driver of devices that no single node has, such as disks in a network; its program has the command ``publish``."""

    def cluster_pools(self) -> Sequence[inventory.ClusterPool]:
        """Return the pools that belong to no single node; raises HardwareError when they cannot be read (the last ones then stay published).

        ``publish`` runs once for the cluster and calls this every ``publish.rescan`` seconds; ``start`` is not called there. On a node, a claim's
        device is looked up in these pools too, at each prepare, unless the driver has ``ClusterDevices``.
        """


@runtime_checkable
class ClusterDevices(Protocol):
    """A driver of devices that several nodes have together; a publisher of the whole cluster offers them (``drakit.ClusterPool``)."""

    def cluster_device(self, pool: str, name: str) -> devices.Device | None:
        """Return a device of a pool that no single node publishes, if this node has a part of it that ``prepare`` can make usable; else None.

        The device is whole, as it is published, and flat; ``prepare`` runs for it on every node where a pod of the claim runs, and does this node's
        part. A claim for a device of which this node has no part is refused.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a driver's metrics: ``<metrics_prefix>_<name>`` with these labels beside ``driver``. ``total`` marks a counter.

    With ``buckets`` it is a histogram whose sum is ``value``: pairs of an upper bound and the number of observations up to it; the last bound is
    infinity.
    """

    name: str
    documentation: str
    value: float
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    total: bool = False
    buckets: Sequence[tuple[float, int]] = ()


@runtime_checkable
class MetricsProvider(Protocol):
    """A driver with metrics of its own."""

    def metrics(self) -> Sequence[Metric]:
        """Return the driver's numbers; called at every scrape, from any thread. An error leaves them out."""


@runtime_checkable
class Diagnosable(Protocol):
    """A driver with checks of its own for ``doctor``."""

    def diagnose(self) -> Iterable[Finding]:
        """Return what a check of the hardware and its software found, with a fix for what fails. Changes nothing; the driver is not started."""


@runtime_checkable
class Removable(Protocol):
    """A driver that has more to remove than its claims. The framework calls ``start`` before ``remove_leftovers``, and ``stop`` afterwards."""

    def leftovers(self) -> Sequence[str]:
        """Name everything this driver made on the node and still has there, that of prepared claims included. Raises HardwareError."""

    def remove_leftovers(self) -> None:
        """Remove all that ``leftovers`` names; nothing to remove is success. Raises HardwareError."""


def author_of(driver: drivers.Driver[Any]) -> drivers.Driver[Any]:
    """Return the author's driver, which may be behind the framework's proxy that times its verbs."""
    return cast("drivers.Driver[Any]", getattr(driver, "drakit_author", driver))


def prepares_claims(driver: drivers.Driver[Any]) -> bool:
    """Return whether a driver prepares all devices of a claim at once."""
    return isinstance(author_of(driver), ClaimDriver)


def prepare_claim(driver: drivers.Driver[Any], grants: Sequence[drivers.Grant[Any]]) -> Sequence[drivers.Prepared]:
    """Return what ``prepare_claim`` of a driver that ``prepares_claims`` returns; raises TypeError where that is not one result for each grant."""
    prepared = cast("ClaimDriver[Any]", driver).prepare_claim(grants)
    if not isinstance(prepared, Sequence):
        raise TypeError(f"prepare_claim() returned {type(prepared).__name__}; return a list of drakit.Prepared, one for each grant")
    if len(prepared) != len(grants):
        raise TypeError(
            f"prepare_claim() returned {len(prepared)} results for {len(grants)} grants; return one for each grant, in their order"
        )
    return prepared


def binds(driver: drivers.Driver[Any]) -> bool:
    """Return whether a driver is a ``Binder``."""
    return isinstance(author_of(driver), Binder)


def bind(driver: drivers.Driver[Any], grants: Sequence[drivers.Grant[Any]]) -> None:
    """Call a driver's ``bind`` for those grants whose device has binding conditions; nothing where the driver is no ``Binder``."""
    author = author_of(driver)
    if isinstance(author, Binder):
        for grant in grants:
            if grant.device.binding_conditions:
                author.bind(grant)


def cluster_device(driver: drivers.Driver[Any], pool: str, name: str) -> devices.Device | None:
    """Return a driver's device of a cluster pool; None where this node has no part of it or the driver has no such pools."""
    author = author_of(driver)
    if isinstance(author, ClusterDevices):
        return author.cluster_device(pool, name)
    return next((item.inventory.flat().by_name().get(name) for item in cluster_pools(author) if item.name == pool), None)


def cluster_pools(driver: drivers.Driver[Any]) -> Sequence[inventory.ClusterPool]:
    """Return a driver's pools that belong to no single node; none where it has no ``ClusterPools``. Raises what the driver raises."""
    author = author_of(driver)
    return author.cluster_pools() if isinstance(author, ClusterPools) else ()


def metrics_of(driver: drivers.Driver[Any]) -> Sequence[Metric]:
    """Return a driver's own metrics; none where it has no ``MetricsProvider``. Raises what the driver raises."""
    author = author_of(driver)
    return author.metrics() if isinstance(author, MetricsProvider) else ()
