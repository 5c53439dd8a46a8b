"""The author's contract, page two: optional protocols that a driver implements beside ``drakit.Driver``.

The framework detects each protocol by its methods. Also inherit the protocol, as in ``class MyDriver(drakit.Driver[C], drakit.Binder[C])``. Then mypy
checks the signatures and reports a missing method.

``ClaimDriver``           prepare all devices of a claim at once
``Binder``                make a device with binding conditions ready, before the pod is bound to this node
``IntentRecovery``        restore what ``plan`` chose for a claim of this boot whose journal was lost
``RecordUpgrade``         read the intents and records that an earlier release of the driver journaled in another form
``ConfigFilter``          decide whether a configuration that names no request is meant for a device
``ConfigMerger``          merge several configurations that apply to one grant
``ConfigDefaults``        choose the configuration of a grant without parameters
``ClusterPools``          publish pools that belong to no single node
``ClusterDevices``        prepare this node's part of devices of a pool that belongs to no single node
``MetricsProvider``       add metrics
``Diagnosable``           add checks to ``doctor``
``ClaimChecker``          check a whole claim when it is written, at the webhook and in ``lint``
``PodChecker``            check a pod with its claims when it is created, at the webhook and in ``lint``
``Removable``             list and remove what the driver created on the node besides prepared claims
``Reclaimer``             list and release hardware that no claim of the journal has
``HardwareOverlap``       say which devices have hardware in common although they share no counter set
``EditsRevision``         say when prepared claims need new CDI files, because the host's files changed
"""

import abc
import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from drakit.core import arguments, errors, inventory, records, specs
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers

Config = TypeVar("Config")


class Verdict(enum.Enum):
    """The result of a check, of ``doctor`` and of ``drakit.testing``. ``WARNING``: the driver works, with restrictions, or breaks a recommendation.

    ``UNKNOWN``: the check could not be made or does not apply. The message has the reason.
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"

    # The names that drakit.testing had of its own.
    PASS, FAIL, WARN, SKIPPED = OK, FAILED, WARNING, UNKNOWN


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check, with a fix unless it passed. ``topic`` is its heading in the output."""

    topic: str
    subject: str
    verdict: Verdict
    message: str
    fix: str = ""

    @classmethod
    def ok(cls, topic: str, subject: str, message: str) -> Self:
        """Return the finding of a check that passed."""
        return cls(topic=topic, subject=subject, verdict=Verdict.OK, message=message)

    @classmethod
    def warning(cls, topic: str, subject: str, message: str, fix: str) -> Self:
        """Return a finding with which the driver works, but with restrictions."""
        return cls(topic=topic, subject=subject, verdict=Verdict.WARNING, message=message, fix=fix)

    @classmethod
    def failed(cls, topic: str, subject: str, message: str, fix: str) -> Self:
        """Return a finding with which the driver cannot work."""
        return cls(topic=topic, subject=subject, verdict=Verdict.FAILED, message=message, fix=fix)

    @classmethod
    def unknown(cls, topic: str, subject: str, message: str, fix: str = "") -> Self:
        """Return the finding of a check that could not be done."""
        return cls(topic=topic, subject=subject, verdict=Verdict.UNKNOWN, message=message, fix=fix)


class ClaimDriver(drivers.Driver[Config]):
    """Base of a driver that prepares all devices of a claim at once: disks of one array, GPUs of one NVLink group."""

    @abc.abstractmethod
    def prepare_claim(self, grants: Sequence[drivers.Grant[Config]]) -> Sequence[drivers.Prepared]:
        """Make all of a claim's devices of this driver usable together, and return one result for each grant, in the same order.

        The framework calls it instead of ``prepare``, also for a claim with one device. Obligations 1 to 6 of page one apply. ``plan`` chose an
        intent for each grant, and the journal has all of them. After an error, RetryError included, the framework calls ``unprepare`` for each grant,
        the last one first. Let the first call undo what the grants have in common. Name that by ``grant.claim.uid`` or the intent, so that each call
        finds it.
        """

    def prepare(self, grant: drivers.Grant[Config]) -> drivers.Prepared:
        """Prepare a claim of one device."""
        (prepared,) = self.prepare_claim([grant])
        return prepared


@runtime_checkable
class Binder(Protocol[Config]):
    """A driver that makes devices ready before their pod is bound (KEP-5007)."""

    def bind(self, grant: drivers.Grant[Config]) -> None:
        """Make a device with binding conditions ready for the claim, after its allocation and before its pod is bound.

        It may take minutes. When it returns, the framework sets the first of ``grant.device.binding_conditions`` to True. After ConfigError or
        DeviceGoneError the framework calls ``unprepare`` and sets the first failure condition to True with the error's text; the scheduler then
        chooses another device. After any other error the framework retries, after a RetryError at its time.

        ``bind`` is idempotent like ``prepare``, and also runs right before each ``prepare``. ``unprepare`` undoes a device that was bound and never
        prepared. The framework binds only devices of the node's own pools. A driver without ``bind`` sets binding conditions itself with
        ``DriverContext.set_status``.
        """


@runtime_checkable
class IntentRecovery(Protocol[Config]):
    """A driver that can restore the identities that ``plan`` chose, after the journal that held them is lost."""

    def recall(self, grant: drivers.Grant[Config]) -> records.Record:
        """Return the intent that ``plan`` chose for a grant of this boot, after the journal that held it was lost.

        The framework calls it for grants whose CDI file still exists, and for those without one if ``plan`` raises DeviceBusyError, because their
        hardware may exist. Then it calls ``prepare`` (for a claim in use) or ``unprepare`` with the result. ``recall`` may read hardware, but never
        changes it. ``planned`` returns the intents that are already known. If the claim itself is gone, consumed capacity and configuration are
        unknown.

        If ``plan`` depends on the grant alone, return ``self.plan(grant)``. If only the container has the identity, read it from ``grant.found``: the
        edits that ``prepare`` returned, or None if the file cannot be trusted. Check it, because somebody may have edited the file.

        ConfigError, DeviceGoneError and DeviceBusyError mean that the intent cannot be determined. The framework then retries a claim in use, and
        does not serve meanwhile. It unprepares a claim that has ended with an empty intent. Without this protocol the intent is empty.
        """


@runtime_checkable
class RecordUpgrade(Protocol):
    """A driver whose intents or records have another form than those of an earlier release, whose claims may still be prepared.

    ``records_version`` is the number of the form that ``plan``, ``recall`` and ``prepare`` return now. A driver without this protocol has version 1.
    The journal keeps the number with each intent and record, and the framework upgrades older ones whenever it reads them: for ``grant.intent``,
    ``grant.record`` and ``planned``. The journal is not rewritten, so the upgrade may be called again for the same one, from any thread.

    Raise the number only for a change that the release before would misread; it ignores a key that was added. That release refuses a newer intent:
    pods keep their devices, and their claims can be released only after the newer release is installed again. Meanwhile ``Site.intents`` fails for
    the whole node: a driver that reads it in ``discover`` offers nothing new and releases its other claims. A node
    that starts then serves its other claims without ``start`` and ``watch``.
    """

    records_version: int

    def upgrade_intent(self, intent: records.Record, version: int) -> records.Record:
        """Return the present form of an intent that an earlier ``version`` returned from ``plan``. Never called for an empty one.

        Decide by the arguments alone, without a call to the hardware. An error fails all that needs the intent: the claim's verbs, a ``plan``
        that calls ``planned``, and a read of ``Site.intents``. The kubelet retries, and the claim stays as it is in the journal.
        """

    def upgrade_record(self, record: records.Record, version: int) -> records.Record:  # noqa: ARG002 - the default needs nothing of it
        """Return the present form of a record that an earlier ``version`` returned from ``prepare``. By default it has not changed."""
        return record


@runtime_checkable
class ConfigFilter(Protocol):
    """A driver with several kinds of configuration or device."""

    def accepts_config(self, device: devices.Device, config: object) -> bool:
        """Return whether a configuration that names no request applies to this device. Without this protocol it does."""


@runtime_checkable
class ConfigMerger(Protocol):
    """A driver that merges configurations, for example because only an admin may set some fields."""

    def merge_configs(self, configs: Sequence[claims.OpaqueConfig]) -> records.Record:
        """Return the effective parameters of a grant from all that apply: classes before the claim, later ones last.

        All of them decode. To reserve a field for admins, raise ConfigError if a claim sets it, and copy the class's value into the result. The
        framework decodes the result and stores it in the journal. Without this protocol the last configuration wins as a whole.
        """


@runtime_checkable
class ConfigDefaults(Protocol):
    """A driver whose default configuration depends on the device."""

    def default_config(self, device: devices.Device) -> object:
        """Return the configuration of a grant without parameters. Raises ConfigError if parameters are required.

        Without this protocol it is the first of ``config_types`` with its defaults, or a ConfigError if a field has no default.
        """


@runtime_checkable
class ClusterPools(Protocol):
    """A driver of devices that no single node has, such as network disks. Its program has the command ``publish``."""

    def cluster_pools(self) -> Sequence[inventory.ClusterPool]:
        """Return the pools that belong to no single node. Raises HardwareError if they cannot be read; the last ones then stay published.

        ``publish`` runs once for the cluster and calls this every ``publish.rescan`` seconds, without ``start``. On a node, each prepare also looks
        up a claim's device in these pools, unless the driver has ``ClusterDevices``.
        """


@runtime_checkable
class ClusterDevices(Protocol):
    """A driver of devices that several nodes share. A publisher for the cluster publishes them (``drakit.ClusterPool``)."""

    def cluster_device(self, pool: str, name: str) -> devices.Device | None:
        """Return a device of a cluster pool if ``prepare`` can make this node's part of it usable, else None.

        The device is flat, as it is published. ``prepare`` runs on every node where a pod of the claim runs, and prepares that node's part. The
        framework refuses a claim for a device of which this node has no part.
        """


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One sample of a driver's metrics: ``<metrics_prefix>_<name>`` with these labels and ``driver``. ``total`` marks a counter.

    With ``buckets`` it is a histogram, and ``value`` is its sum. Each bucket is an upper bound and the number of observations up to it. The last
    bound is infinity.
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
        """Return the driver's metrics. Called at every scrape, from any thread. After an error the scrape has none of them.

        ``show`` and ``slices`` call it too, on a driver that is not started, and show none after an error.
        """


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class NotOffered:
    """Hardware that a driver does not offer, or offers with a caution: ``kind`` and ``name`` as an admin knows them, such as interface ``eth0``.

    ``reason`` is read after the name. ``change`` is the fix, as an imperative phrase; empty if there is none. An ``is_expected`` reason is normal or
    follows the admin's settings. ``is_faulty`` hardware would be offered if it worked. With ``is_caution`` the hardware is offered.
    """

    kind: str
    name: str
    reason: str
    change: str = ""
    is_expected: bool = False
    is_faulty: bool = False
    is_caution: bool = False


@runtime_checkable
class Selective(Protocol):
    """A driver that does not offer all of the node's hardware, and says why, for ``show`` and ``doctor``."""

    def not_offered(self) -> Sequence[NotOffered]:
        """Return what the last discovery did not offer, or offered with a caution. Raises HardwareError."""


@runtime_checkable
class Withholder(Protocol):
    """A driver that sees devices which it does not offer, such as a NIC that the host uses. Their claims keep them, and their health stays."""

    def withheld_devices(self) -> Mapping[str, str]:
        """Return why the last ``discover`` left out a device whose hardware is there, by the device's name."""


@runtime_checkable
class Diagnosable(Protocol):
    """A driver with checks of its own for ``doctor``."""

    def diagnose(self) -> Iterable[Finding]:
        """Check hardware and software without changes, and return the findings, with a fix for each failure. The driver is not started."""


@runtime_checkable
class ClaimChecker(Protocol):
    """A driver that checks a claim as a whole when it is written: its requests and configurations together.

    The commands ``webhook`` and ``lint`` make the driver and call this alone; prepare does not call it. Refuse only what no node could prepare, and
    decide by the arguments, without hardware: the webhook runs on any node.
    """

    def check_claim(self, claim: specs.ClaimSpec) -> Iterable[errors.ConfigError] | None:
        """Return or raise the errors of a claim or template: the text has mistake and fix, ``"...; write ..."``, the field is one of the claim's.

        Called if a request is known to be for this driver, or the claim has parameters for it, and only after each of them was found valid.
        """


@runtime_checkable
class PodChecker(Protocol):
    """A driver that checks a pod with its claims when it is created, as ``ClaimChecker`` checks claims."""

    def check_pod(self, pod: specs.PodSpec) -> Iterable[errors.ConfigError] | None:
        """Return or raise the errors of a pod: the text has mistake and fix, ``"...; remove ..."``, the field is ``pod.field`` or a use's.

        Called for pods of which a claim or an extended resource is known to request devices of this driver, or a claim has parameters for it.
        """


@runtime_checkable
class Removable(Protocol):
    """A driver that creates more than its claims. The framework calls ``start`` before ``remove_leftovers``, and ``stop`` afterwards."""

    def leftovers(self) -> Sequence[str]:
        """Return the names of all that this driver created on the node and that still exists, prepared claims included. Raises HardwareError."""

    def remove_leftovers(self) -> None:
        """Remove all that ``leftovers`` names. Succeeds if there is nothing to remove. Raises HardwareError."""


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """Hardware state that no claim of the journal has: a share, a MIG instance, a daemon.

    ``kind`` and ``name`` identify it among those of the driver, and ``detail`` describes it for people. ``locks`` are the ``lock_names`` of its
    device. ``is_marked`` is False where nothing proves that the driver created it, so that it may be an admin's. ``user`` names the pod or process
    that still uses it. An unmarked or used one is released only if a person names it.
    """

    kind: str
    name: str
    detail: str = ""
    locks: tuple[str, ...] = ()
    is_marked: bool = True
    user: str = ""

    @property
    def needs_name(self) -> bool:
        """Return whether it is released only if a person names it."""
        return not self.is_marked or bool(self.user)


@runtime_checkable
class Reclaimer(Protocol):
    """A driver that can find hardware state that no claim has, as after its journal was deleted while pods ran."""

    def unclaimed(self) -> Sequence[Leftover]:
        """Return all that the driver may have created for claims and that no intent of the journal names. Raises HardwareError.

        Read the intents before and after the hardware: a claim that begins or ends meanwhile is known from one of the two. The driver may not be
        started. ``doctor`` and the metric ``drakit_unclaimed`` call it.
        """

    def reclaim(self, leftover: Leftover) -> None:
        """Release one of them. Succeeds if it is gone. Raises HardwareError, DeviceBusyError. The caller holds ``leftover.locks``."""


@runtime_checkable
class HardwareOverlap(Protocol):
    """A driver with devices that have hardware in common although they consume from no common counter set, for example before and after a change."""

    def overlaps(self, first: devices.Device, second: devices.Device) -> bool:
        """Return whether two flat devices have hardware in common. Decide by the devices alone, without a call to the hardware.

        While a claim holds a device that ``discover`` no longer returns, or returns in another form, the framework offers no device that overlaps
        it. Without this protocol two devices overlap if they have the same name or consume from the same counter set.
        """


@runtime_checkable
class EditsRevision(Protocol):
    """A driver whose edits depend on files or numbers of the host that change while claims are prepared, such as libraries."""

    def edits_revision(self) -> str:
        """Return a text that changes when ``prepare`` would return other edits for prepared devices. Raises HardwareError.

        The framework calls it every few seconds, so it must be cheap: compare versions and modification times. After a change the framework calls
        ``prepare`` for every prepared device and writes new edits into the CDI files. It also does so at each start, with or without this protocol.
        """


def prepare_claim(driver: ClaimDriver[Any], grants: Sequence[drivers.Grant[Any]]) -> Sequence[drivers.Prepared]:
    """Call a driver's ``prepare_claim`` and return its results. Raises TypeError unless there is one for each grant."""
    prepared = driver.prepare_claim(grants)
    if not isinstance(prepared, Sequence):
        raise TypeError(f"prepare_claim() returned {type(prepared).__name__}; return a list of drakit.Prepared, one for each grant")
    if len(prepared) != len(grants):
        raise TypeError(
            f"prepare_claim() returned {len(prepared)} results for {len(grants)} grants; return one for each grant, in their order"
        )
    return prepared


def binds(driver: drivers.Driver[Any]) -> bool:
    """Return whether a driver is a ``Binder``."""
    return isinstance(driver, Binder)


def bind(driver: drivers.Driver[Any], grants: Sequence[drivers.Grant[Any]]) -> None:
    """Call ``bind`` for each grant, whose device has binding conditions, if the driver is a ``Binder``."""
    if isinstance(driver, Binder):
        for grant in grants:
            driver.bind(grant)


def cluster_device(driver: drivers.Driver[Any], pool: str, name: str) -> devices.Device | None:
    """Return a driver's device of a cluster pool; None if this node has no part of it or the driver has no such pools."""
    if isinstance(driver, ClusterDevices):
        return driver.cluster_device(pool, name)
    pools = cluster_pools(driver)
    return next((candidate.inventory.flat().by_name().get(name) for candidate in pools if candidate.name == pool), None)


def cluster_pools(driver: drivers.Driver[Any]) -> Sequence[inventory.ClusterPool]:
    """Return a driver's cluster pools; none if it has no ``ClusterPools``. Raises what the driver raises."""
    return driver.cluster_pools() if isinstance(driver, ClusterPools) else ()


def metrics_of(driver: drivers.Driver[Any]) -> Sequence[Metric]:
    """Return a driver's own metrics; none if it has no ``MetricsProvider``. Raises what the driver raises."""
    return driver.metrics() if isinstance(driver, MetricsProvider) else ()


def unclaimed(driver: drivers.Driver[Any]) -> Sequence[Leftover]:
    """Return the hardware state that no claim has; none if the driver has no ``Reclaimer``. Raises what the driver raises."""
    return driver.unclaimed() if isinstance(driver, Reclaimer) else ()


def overlap(driver: drivers.Driver[Any], first: devices.Device, second: devices.Device) -> bool:
    """Return whether two devices have hardware in common."""
    if isinstance(driver, HardwareOverlap):
        return driver.overlaps(first, second)
    return first.name == second.name or not set(first.lock_names).isdisjoint(second.lock_names)


def edits_revision(driver: drivers.Driver[Any]) -> str:
    """Return a driver's revision of its edits; an empty text if it has no ``EditsRevision``. Raises what the driver raises."""
    return driver.edits_revision() if isinstance(driver, EditsRevision) else ""
