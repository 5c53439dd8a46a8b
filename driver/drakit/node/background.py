"""What runs on a serving node beside the kubelet's calls: the author's ``start`` and ``watch``, reports to users, binding, orphaned claims.

Started after recovery and before the kubelet can call, stopped once the last verb has returned: first the loops that call verbs, then the author,
and the reports last, so that what the author says in ``stop`` is still told.
"""

import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from drakit.core import advanced, backoff, claim_status, errors, inventory, names, ports
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.kubelet import checkpoint, metadata
from drakit.node import binding, device_status, driver_context, inventory_cache, local_node, orphans
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SETTLE_SECONDS = 0.1
JOIN_SECONDS = 10.0

WriteStatus = Callable[[claims.ClaimRef, claim_status.DeviceStatus], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApiPorts:
    """The API server's ports for what is told to users, for what is asked after memory was lost, and for claims that wait to be bound."""

    statuses: ports.ClaimStatuses
    events: ports.Events
    claim_list: ports.ClaimList
    bindings: ports.Bindings | None = None
    conditions: device_status.Conditions = device_status.Conditions.FAILURES


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubeletPorts:
    """What the kubelet's side knows: whether it can call now, its own books, and who takes the health of a device to it."""

    is_registered: Callable[[], bool]
    checkpoint: pathlib.Path
    health: Callable[[contexts.HealthReport], None]


class BackgroundServices:
    """One node's; ``failed`` is called when a loop dies of a bug. ``telling`` is None where there is no API server to tell anything to."""

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
        self._news = threading.Event()
        self._stop, self._stop_telling = threading.Event(), threading.Event()
        self._working: list[threading.Thread] = []
        self._tellers: list[threading.Thread] = []
        self._reports: device_status.StatusReporter | None = None
        self._binding: binding.Binding | None = None
        self._started = False
        self._taints: Mapping[str, Sequence[devices.Taint]] = {}

    def start(self) -> None:
        """Begin; raises what the author's ``start`` raises where that is a DrakitError, else HardwareError naming it."""
        sinks = driver_context.ReportSinks(rediscover=self.wake, health=self._kubelet.health)
        if self._api is not None:
            told = device_status.StatusReporter(
                self._api.statuses,
                self._api.events,
                self._clock,
                pool=self._local.identity.pool,
                conditions=self._api.conditions,
            )
            sinks = dataclasses.replace(sinks, status=told.status, event=told.notice)
            self._local.engine.reporter = self._reports = told
            self._tellers = [self._spawn(name, loop, self._stop_telling) for name, loop in told.loops()]
        if self._local.metadata is not None:
            told_too = updating_metadata(self._local.metadata, sinks.status)
            sinks = dataclasses.replace(sinks, status=told_too)
        self._local.context.sinks = sinks
        self._start_author()
        self._working = [self._spawn("vanished-claims", self._vanished().run, self._stop)]
        if drivers.watches(self._local.author):
            loop = WatchLoop(self._local.author, self._local.context, self._clock)
            self._working.append(self._spawn("watch", loop.run, self._stop))

    def stop(self, *, idle: bool = True) -> None:
        """End all of it. Without ``idle`` a verb is still running and the author, who may not be stopped then, is left to the end of the process.

        Safe to call twice and after a failed start.
        """
        self._stop.set()
        self._local.context.stopping.set()
        self.wake()
        _join(self._working)
        if idle and (self._binding is None or self._binding.is_idle):
            self._stop_author()
        self._stop_telling.set()
        if self._reports is not None:
            self._reports.wake()
        _join(self._tellers)

    def discovered(self) -> None:
        """The hardware was looked at: begin to bind claims when there is a device with binding conditions, or something begun before."""
        local, api, told = self._local, self._api, self._reports
        if self._binding is not None or api is None or api.bindings is None or told is None or not advanced.binds(local.author):
            return
        conditional = any(device.binding_conditions for device in local.offered.flat.devices)
        if self._stop.is_set() or not (conditional or any(map(local.engine.is_unfinished, local.journal.entries()))):
            return
        self._binding = binding.Binding(
            local.engine,
            local.journal,
            self._claims,
            api.bindings,
            told.bound,
            self._clock,
            ours=binding.OwnDevices(driver=local.author.name, pool=local.identity.pool),
        )
        self._working.append(self._spawn("binding", self._binding.run, self._stop))

    def wake(self) -> None:
        """Discovery is due."""
        self._news.set()

    def wait_for_news(self, stop: threading.Event, seconds: float) -> None:
        """Wait until discovery is due, ``seconds`` at most; news that come in a burst are one."""
        if self._clock.wait(self._news, seconds):
            self._clock.wait(stop, SETTLE_SECONDS)
            self._news.clear()

    def tainted(self, offered: inventory.Inventory) -> inventory.Inventory:
        """The inventory with the taints that the author put."""
        try:
            self._taints = self._local.context.taints()
        except errors.JournalError as error:
            _log.error("reading taints failed", error=str(error))
        return inventory.with_taints(offered, self._taints)

    def _start_author(self) -> None:
        name = self._local.author.name
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
        except Exception:  # noqa: BLE001 - the process ends whatever the author says
            _log.exception("driver stop failed", driver=self._local.author.name)

    def _vanished(self) -> orphans.OrphanCollector:
        return orphans.OrphanCollector(
            self._local.engine,
            self._local.journal,
            self._claims,
            tracked=self._tracked,
            is_registered=self._kubelet.is_registered,
            clock=self._clock,
        )

    def _tracked(self) -> Collection[names.ClaimUid] | None:
        return checkpoint.tracked(self._kubelet.checkpoint)

    def _spawn(self, name: str, loop: Callable[[threading.Event], None], stop: threading.Event) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(name, loop, stop), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, name: str, loop: Callable[[threading.Event], None], stop: threading.Event) -> None:
        try:
            loop(stop)
        except Exception:  # noqa: BLE001 - whatever it was, the process must end and be started anew
            _log.exception("a part of the driver died", part=name)
            self._failed()


class WatchLoop:
    """Calls ``author.watch`` at the driver's interval, later after errors; an error of the author's never ends it."""

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
        except Exception:  # noqa: BLE001 - an error of the author's must not end the watch
            _log.exception("watch raised an unexpected error", driver=self._author.name, retry_in_s=retry_in_s)
            return False
        return True


class StoppableContext(contexts.DriverContext, Protocol):
    """A driver's context whose ``stopping`` can be set."""

    @property
    def stopping(self) -> threading.Event:
        """The event that ends a watch."""


@contextlib.contextmanager
def watching(
    author: inventory_cache.Author, context: StoppableContext, clock: ports.Clock, *, seconds: float = JOIN_SECONDS
) -> Iterator[threading.Thread]:
    """Start a driver and call its watch in the thread yielded, as a node does; stop both at the end, and wait ``seconds`` at most for the watch."""
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
    """Return a sink of device status that also writes the network facts in it for running containers."""

    def write(claim: claims.ClaimRef, told: claim_status.DeviceStatus) -> None:
        status(claim, told)
        if told.network is not None:
            try:
                files.update(claim.uid, told.device, told.network)
            except errors.DrakitError as error:
                _log.warning("containers are not told of their network", claim=str(claim), claim_uid=claim.uid, error=str(error))

    return write


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(JOIN_SECONDS)
