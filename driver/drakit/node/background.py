"""Run the background services of a serving node: the author's ``start`` and ``watch``, reports to users, binding, orphans, and fresh CDI files.

They start after recovery and before the kubelet can call. While a lost journal is restored, the author is started but does not watch. They stop after
the last verb has returned, in this order: the loops that call verbs, the author, the reporters. The reporters stop last, so that they still send what
the author reports in ``stop``.
"""

import contextlib
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from drakit.core import advanced, backoff, claim_status, errors, inventory, ports
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.kubelet import checkpoint, metadata
from drakit.node import (
    binding,
    deferred_releases,
    device_status,
    driver_context,
    edits_refresh,
    held_devices,
    inventory_cache,
    local_node,
    orphans,
)
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SETTLE_SECONDS = 0.1
JOIN_SECONDS = 10.0

WriteStatus = Callable[[claims.ClaimRef, claim_status.DeviceStatus], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApiPorts:
    """The API server's ports: reports to users, the list of claims that restores a lost journal, and claims that wait to be bound."""

    statuses: ports.ClaimStatuses
    events: ports.Events
    claim_list: ports.ClaimList
    bindings: ports.Bindings | None = None
    conditions: device_status.Conditions = device_status.Conditions.FAILURES


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubeletPorts:
    """The kubelet's side: whether it knows the driver, its checkpoint file, and the receiver of health reports."""

    is_registered: Callable[[], bool]
    checkpoint: pathlib.Path
    health: Callable[[contexts.HealthReport], None]


class BackgroundServices:
    """The background services of one node. ``failed`` is called when a loop dies of a bug; ``api`` is None if there is no API server."""

    def __init__(
        self,
        local: local_node.LocalNode,
        claim_source: ports.ClaimSource,
        clock: ports.Clock,
        *,
        kubelet: KubeletPorts,
        api: ApiPorts | None,
        failed: Callable[[], None],
    ) -> None:
        self._local = local
        self._claims = claim_source
        self._clock = clock
        self._kubelet = kubelet
        self._api = api
        self._failed = failed
        self.releases = deferred_releases.DeferredReleases(local.engine, local.journal, clock)
        self._discovery_due = threading.Event()
        self._stop, self._stop_reporting = threading.Event(), threading.Event()
        self._worker_threads: list[threading.Thread] = []
        self._reporter_threads: list[threading.Thread] = []
        self._reporter: device_status.StatusReporter | None = None
        self._binding: binding.Binding | None = None
        self._started = False
        self.not_started = ""
        """Why the node serves without the author's ``start``: a newer release journaled a claim. Empty if the author was started."""
        self._taints: Mapping[str, Sequence[devices.Taint]] = {}
        self._displaced: frozenset[tuple[str, bool]] = frozenset()

    def start(self) -> None:
        """Start the services. Raises the DrakitError that the author's ``start`` raises, HardwareError for any other error of it, and JournalError.

        The author is not started while the journal has a claim that this release cannot read: a ``start`` that fails halfway cannot be stopped.
        """
        sinks = driver_context.ReportSinks(rediscover=self.wake, health=self._kubelet.health)
        if self._api is not None:
            reporter = device_status.StatusReporter(
                self._api.statuses,
                self._api.events,
                self._clock,
                pool=self._local.identity.pool,
                conditions=self._api.conditions,
            )
            sinks = dataclasses.replace(sinks, status=reporter.status, event=reporter.event)
            self._local.engine.reporter = self._reporter = reporter
            self._reporter_threads = [self._spawn(name, loop, self._stop_reporting) for name, loop in reporter.loops()]
        if self._local.metadata is not None:
            sinks = dataclasses.replace(sinks, status=updating_metadata(self._local.metadata, sinks.status))
        self._local.context.sinks = sinks
        self._local.offered.released = self.wake
        self._start_author()
        self._local.engine.defers_release = True
        if not self._local.is_lost:
            self.watch()

    def watch(self) -> None:
        """Start what needs a complete journal: loops that call verbs for its claims, and the author's watch, which may remove what no claim has."""
        collector = orphans.OrphanCollector(
            self._local.engine,
            self._local.journal,
            self._claims,
            tracked=lambda: checkpoint.tracked(self._kubelet.checkpoint),
            is_registered=self._kubelet.is_registered,
            clock=self._clock,
        )
        refresher = edits_refresh.EditsRefresher(self._local.engine, self._local.journal, self._local.author, self._clock)
        self._worker_threads += [
            self._spawn("orphaned-claims", collector.run, self._stop),
            self._spawn("deferred-releases", self.releases.run, self._stop),
            self._spawn("edits-refresh", refresher.run, self._stop),
        ]
        if self._started and drivers.watches(self._local.author):
            loop = WatchLoop(self._local.author, self._local.context, self._clock)
            self._worker_threads.append(self._spawn("watch", loop.run, self._stop))

    def stop(self, *, idle: bool = True, seconds: float = JOIN_SECONDS) -> None:
        """Stop the services, and wait ``seconds`` at most for their threads. Safe to call twice and after a failed start.

        The author is not stopped while a verb runs, whoever called it, or where the caller is not ``idle`` and may still call one.
        """
        self._stop.set()
        self._local.context.stopping.set()
        self.wake()
        end = self._clock.monotonic() + seconds
        join(self._worker_threads, seconds)
        if idle and self._local.verbs.is_idle and (self._binding is None or self._binding.is_idle):
            self._stop_author()
        self._stop_reporting.set()
        if self._reporter is not None:
            self._reporter.wake()
        join(self._reporter_threads, end - self._clock.monotonic())

    def discovered(self) -> None:
        """Start to bind claims after a discovery, if a device has binding conditions or the journal has an unfinished claim."""
        local, api, reporter = self._local, self._api, self._reporter
        if self._binding is not None or api is None or api.bindings is None or reporter is None or not advanced.binds(local.author):
            return
        conditional = any(device.binding_conditions for device in local.offered.current.flat.devices)
        if self._stop.is_set() or not (conditional or any(map(local.engine.is_unfinished, local.journal.entries()))):
            return
        self._binding = binding.Binding(
            local.engine,
            local.journal,
            self._claims,
            api.bindings,
            reporter.bound,
            self._clock,
            ours=binding.OwnDevices(driver=local.author.name, pool=local.identity.pool),
        )
        self._worker_threads.append(self._spawn("binding", self._binding.run, self._stop))

    def displaced(self, gone: Mapping[str, held_devices.Displaced]) -> None:
        """Log each newly displaced device, and send an Event to the users of the claims that hold it."""
        displaced = frozenset((name, entry.is_withheld) for name, entry in gone.items())
        for name, is_withheld in displaced - self._displaced:
            entry = gone[name]
            for claim in entry.claims:
                fields = {"claim": str(claim), "claim_uid": claim.uid, "device": name, "reason": entry.reason}
                if is_withheld:
                    _log.warning("device withheld under a claim", **fields)
                else:
                    _log.warning("device changed under a claim", **fields)
                self._local.context.record_event(claim, entry.event)
        self._displaced = displaced

    def wake(self) -> None:
        """Request a discovery now."""
        self._discovery_due.set()

    def wait_until_due(self, stop: threading.Event, seconds: float) -> None:
        """Wait until a discovery is requested, ``seconds`` at most; a burst of requests leads to one discovery."""
        if self._clock.wait(self._discovery_due, seconds):
            self._clock.wait(stop, SETTLE_SECONDS)
            self._discovery_due.clear()

    def tainted(self, offered: inventory.Inventory) -> inventory.Inventory:
        """Return the inventory with the taints that the author set; the last known ones where the journal cannot be read."""
        try:
            self._taints = self._local.context.taints()
        except errors.JournalError as error:
            _log.error("reading taints failed", error=str(error))
        return inventory.with_taints(offered, self._taints)

    def _start_author(self) -> None:
        name = self._local.author.name
        if (newer := self._local.unreadable()) is not None:
            self.not_started = str(newer)
            _log.error("driver not started: serving without its background work", driver=name, error=self.not_started)
            return
        try:
            self._local.author.start(self._local.context)
        except errors.DrakitError as error:
            _log.error("driver start failed", driver=name, error=str(error))
            raise
        except Exception as error:
            _log.exception("driver start raised an unexpected error", driver=name)
            raise errors.HardwareError(f"{name} start()", f"{type(error).__name__}: {error}; see the log") from error
        self._started = True

    def _stop_author(self) -> None:
        if not self._started:
            return
        self._started = False
        try:
            self._local.author.stop()
        except Exception:  # noqa: BLE001 - the process ends in any case
            _log.exception("driver stop failed", driver=self._local.author.name)

    def _spawn(self, name: str, loop: Callable[[threading.Event], None], stop: threading.Event) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(name, loop, stop), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, name: str, loop: Callable[[threading.Event], None], stop: threading.Event) -> None:
        try:
            loop(stop)
        except Exception:  # noqa: BLE001 - after any bug the process must end and restart
            _log.exception("background thread died", part=name)
            self._failed()


class WatchLoop:
    """A loop that calls ``author.watch`` at the driver's interval, with growing pauses after errors. No error of the author ends it."""

    def __init__(self, author: inventory_cache.Author, context: contexts.DriverContext, clock: ports.Clock) -> None:
        self._author = author
        self._context = context
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set."""
        pauses = backoff.Backoff(*self._author.watch_retry)
        while not stop.is_set():
            if self._watch(pauses.pause):
                pauses.reset()
                self._clock.wait(stop, self._author.watch_interval)
            else:
                self._clock.wait(stop, pauses.next())

    def _watch(self, retry_in_s: float) -> bool:
        try:
            self._author.watch(self._context)
        except errors.DrakitError as error:
            _log.warning("watch failed", driver=self._author.name, error=str(error), retry_in_s=retry_in_s)
            return False
        except Exception:  # noqa: BLE001 - no error of the author may end the watch
            _log.exception("watch raised an unexpected error", driver=self._author.name, retry_in_s=retry_in_s)
            return False
        return True


class StoppableContext(contexts.DriverContext, Protocol):
    """A driver's context whose ``stopping`` can be set."""

    @property
    def stopping(self) -> threading.Event:
        """Return the event that ends a watch."""


@contextlib.contextmanager
def watching(
    author: inventory_cache.Author, context: StoppableContext, clock: ports.Clock, *, seconds: float = JOIN_SECONDS
) -> Iterator[threading.Thread]:
    """Start a driver and run its watch in the yielded thread, as a node does. At exit stop both, and wait at most ``seconds`` for the watch."""
    thread = threading.Thread(target=WatchLoop(author, context, clock).run, args=(context.stopping,), name="watch", daemon=True)
    try:
        author.start(context)
        thread.start()
        yield thread
    finally:
        context.stopping.set()
        if thread.ident is not None:
            thread.join(seconds)
        author.stop()


def updating_metadata(files: metadata.MetadataFiles, status: WriteStatus) -> WriteStatus:
    """Return a sink for device status that also writes its network data into the device metadata files of running containers."""

    def write(claim: claims.ClaimRef, reported: claim_status.DeviceStatus) -> None:
        status(claim, reported)
        if reported.network is not None:
            try:
                files.update(claim.uid, reported.device, reported.network)
            except errors.DrakitError as error:
                _log.warning("network metadata update failed", claim=str(claim), claim_uid=claim.uid, error=str(error))

    return write


def join(threads: Sequence[threading.Thread], seconds: float) -> None:
    """Wait until these threads have ended, ``seconds`` at most for all of them."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
