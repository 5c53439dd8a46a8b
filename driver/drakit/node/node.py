"""A serving node: the local node, the kubelet's sockets and the publisher of one driver, started and stopped in the right order.

The start order is: journal and recovery, background services, service socket, registration socket, first discovery, publisher. The service listens
before the driver registers with the kubelet. The stop order is the reverse, and the author stops after the last verb has returned. Slices stay
published, so a quick restart withdraws no device.

In a rolling update two instances serve. The kubelet prefers the younger one, so that one discovers the hardware before it registers, and exits if
the discovery fails. The older one finishes its calls in flight before the kubelet closes their connection.

If the driver has not been registered for ``registration_grace`` seconds (the kubelet refused it, or a program keeps deleting the registration
socket), the publisher offers no devices, because pods that got them could not start. At the start devices are offered at once, because the kubelet
registers the driver within seconds.

A RetryError of discover() means that the hardware is not ready: its kernel driver is not loaded, for example. Then the node offers no devices, serves
the kubelet so that pods can end, and discovers again after the error's time. After any other error the last inventory stays offered.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import advanced, errors, inventory, lifecycle, ports
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core.slices import resource_slice
from drakit.kubelet import checkpoint, dra, health, registration, server, sockets
from drakit.node import background, local_node, metrics, recovery, recovery_retry, restore_loop, restorer, unclaimed_cache
from drakit.node.publishing import publisher
from drakit.serving import unix_sockets
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SERVICE_THREADS = 32
DRAIN_SECONDS = 5.0
STOP_GRACE = 10.0
RENEW_GRACE = 45.0
REGISTRATION_GRACE = 30.0
GUARD_SECONDS = 2.0
JOIN_SECONDS = 5.0
RETRY_SECONDS = 1.0
"""The shortest pause between two discoveries of hardware that is not ready."""
STOP_SECONDS = 20.0
"""The time of a stop in all, below the 25 s after which the process ends itself."""
LAST_REPORTS_SECONDS = 1.0
VERIFY_SECONDS = 5.0
"""How long a start waits for another process that restores claims; the restore loop goes on after it."""
RESTORE = "restore"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeDependencies:
    """The dependencies of a node: the API server's ports, the kubelet's registration folder, a clock and the discovery interval.

    ``instance`` is the UID of the driver's pod where two processes may serve at once (a rolling update). Devices are withdrawn when the driver has
    not been registered for ``registration_grace`` seconds. A start waits ``verify_seconds`` at most for another process that restores claims.
    ``failed`` is called when a background thread dies of a bug, beside ``Node.failed``.
    """

    claim_source: ports.ClaimSource
    slice_store: ports.SliceStore
    registry: pathlib.Path
    clock: ports.Clock
    rescan_seconds: float = 60.0
    form: publisher.FormChoice = publisher.FormChoice.AUTO
    instance: str = ""
    registration_grace: float = REGISTRATION_GRACE
    verify_seconds: float = VERIFY_SECONDS
    api: background.ApiPorts | None = None
    meter: metrics.DriverMetrics | None = None
    failed: Callable[[], None] = lambda: None


class Node:
    """A serving driver. ``failed`` is set when one of its threads dies of a bug; the process should then exit and restart."""

    def __init__(self, spec: local_node.DriverSpec, folders: local_node.Folders, dependencies: NodeDependencies, *, node_name: str) -> None:
        self._dependencies = dependencies
        self._stop = threading.Event()
        self.failed = threading.Event()
        self.local = local_node.LocalNode.open(
            spec, folders, dependencies.claim_source, dependencies.meter, checks_new=dependencies.api is not None
        )
        self.local.journal.set_pool(spec.identity.pool)
        target = publisher.Target(driver=spec.driver_name, node=node_name, pool=spec.identity.pool)
        self.publisher = publisher.Publisher(
            target,
            store=dependencies.slice_store,
            clock=dependencies.clock,
            form=dependencies.form,
            meter=dependencies.meter,
            is_succeeded=self._is_succeeded,
        )
        self.local.offered.stores_sharing = lambda: self.publisher.stores_sharing
        self.calls = dra.InFlightCalls()
        stale_seconds = max(health.STALE_SECONDS, 3 * dependencies.rescan_seconds)
        self.health = health.HealthBoard(spec.identity.pool, dependencies.clock, stale_seconds=stale_seconds)
        path = sockets.service_path(folders.home, sockets.check_instance(dependencies.instance))
        self._service = server.SocketServer(path, dra.register(self.local.engine, self.health, self.calls), threads=SERVICE_THREADS)
        plugin = registration.Plugin(name=spec.driver_name, endpoint=path, services=dra.ADVERTISED, instance=dependencies.instance)
        self.registrar = registration.Registrar(plugin, dependencies.registry, dependencies.clock)
        self._offering, self._starting = threading.Lock(), threading.Lock()
        self._is_serving = False
        self._blocked = ""
        listing = dependencies.api.claim_list if dependencies.api else NoApiServer()
        self._restoring = restore_loop.RestoreLoop(self.local.restorer, listing, dependencies.clock, self._offer, self._node_state)
        self._recovery = recovery_retry.RecoveryRetry(self.local.engine, self.local.journal, dependencies.clock)
        self._unclaimed = unclaimed_cache.UnclaimedCache(lambda: advanced.unclaimed(self.local.author), dependencies.clock)
        self._as_published: Mapping[str, devices.Device] | None = None if dependencies.api else {}
        self._checkpoint = dependencies.registry.parent / checkpoint.FILE
        self._published = (0, True, 0, True)
        self._threads: list[threading.Thread] = []
        kubelet = background.KubeletPorts(
            is_registered=lambda: self.registrar.status.state is registration.State.REGISTERED,
            checkpoint=self._checkpoint,
            health=self._report_health,
        )
        self.background = background.BackgroundServices(
            self.local, dependencies.claim_source, dependencies.clock, kubelet=kubelet, api=dependencies.api, failed=self._fail
        )

    def start(self) -> None:
        """Serve and publish. Return once the sockets listen, or at once where a lost journal must be restored first.

        Raises SettingsError when a socket cannot be created, and the errors of the author's start.
        """
        try:
            self.background.start()
            if self.registrar.has_another():
                self._first_discovery()
            deadline = recovery.Deadline(self._dependencies.verify_seconds)
            if self.local.is_unverified and self._restoring.attempt(lambda: deadline.is_waiting() and not self._stop.is_set()):
                self._restored()
            if not self.local.is_lost:
                self._serve()
        except BaseException:
            self.stop()
            raise
        if self._dependencies.meter is not None:
            metrics.add_gauges(self, self._dependencies.meter)
        self._spawn("verbs", lambda: self.local.verbs.watch(self._stop))
        if not self._is_serving:
            self._spawn(RESTORE, self._restore)
        self._spawn("discovery", self._discover)
        self._spawn("publisher", lambda: self.publisher.run(self._stop))
        self._spawn("slice-watch", lambda: self.publisher.follow(self._stop))

    def stop(self) -> None:
        """Stop serving, finish calls in flight, close the journal, in about ``STOP_SECONDS``. Safe to call twice and after a failed start."""
        deadline = recovery.Deadline(STOP_SECONDS)
        with self._starting:
            self._stop.set()
        self.publisher.wake()
        self.calls.wait_idle(DRAIN_SECONDS)
        self.registrar.stop()
        self.health.close()
        self._service.stop(grace=STOP_GRACE)
        self.background.wake()
        background.join(self._threads, min(JOIN_SECONDS, deadline.seconds_left()))
        is_restored = not any(thread.is_alive() and thread.name == RESTORE for thread in self._threads)
        is_idle = self.calls.wait_idle(min(JOIN_SECONDS, max(0.0, deadline.seconds_left()))) and is_restored
        self.background.stop(idle=is_idle, seconds=max(LAST_REPORTS_SECONDS, deadline.seconds_left()))
        self.local.close()

    def registration(self) -> str:
        """Return an empty string when the driver is registered with the kubelet, else the reason why not."""
        if not self._is_serving:
            return self._restoring.status
        if self._blocked:
            return self._blocked
        status = self.registrar.status
        if status.state is registration.State.REGISTERED:
            return ""
        if status.error:
            return f"the kubelet refused the driver: {status.error}"
        problem = unix_sockets.real_path_problem(self.registrar.socket)
        return f"the kubelet has not registered the driver{'; ' if problem else ''}{problem}"

    def not_ready(self) -> str:
        """Return why the driver's hardware is not ready, so that no devices are offered; empty where it is."""
        return self.local.offered.not_ready

    def is_published(self) -> bool:
        """Return whether devices were published since the start."""
        return self.publisher.published.is_set()

    def devices(self) -> inventory.Inventory:
        """Return the offered inventory, flat, with all taints."""
        return self.background.tainted(self.local.offered.current.flat)

    def claims(self) -> dict[lifecycle.State, int]:
        """Return the number of claims in each state. Raises JournalError."""
        return self.local.journal.counts()

    def device_health(self) -> dict[contexts.Health, int]:
        """Return the number of devices in each state of health, as reported to the kubelet."""
        return dict(self.health.counts())

    def unclaimed(self) -> Sequence[advanced.Leftover] | None:
        """Return the hardware state that no claim has, read at most once a minute; None while a lost journal is not restored."""
        return None if self.local.is_lost else self._unclaimed()

    def oldest_verb_seconds(self) -> float:
        """Return for how long the oldest running verb has run, 0 where none runs."""
        return self.local.verbs.oldest_seconds()

    def unrecovered(self) -> int:
        """Return the number of claims that are not recovered yet."""
        return len(self._recovery.pending)

    def note(self) -> str:
        """Return what an operator should know although the driver serves: no start, verbs that run for long, and claims that are retried."""
        unread = self.background.not_started
        notes = (
            unread and f"driver not started: {unread}",
            self.local.verbs.slow(),
            self._recovery.note(),
            self.background.releases.note(),
        )
        return "; ".join(filter(None, notes))

    @property
    def metrics_prefix(self) -> str:
        """Return the prefix of the names of the driver's own metrics."""
        return self.local.author.metrics_prefix

    def driver_metrics(self) -> Sequence[advanced.Metric]:
        """Return the driver's own metrics."""
        return advanced.metrics_of(self.local.author)

    def _serve(self) -> None:
        """Open the service socket, register with the kubelet, and retry what recovery could not recover, unless ``stop`` was called."""
        with self._starting:
            if self._stop.is_set():
                return
            sockets.clear_services(self._service.path.parent)
            self._service.start()
            self.registrar.start()
            self._is_serving = True
        self._spawn("guard", self._guard)
        self._retry_recovery()

    def _restore(self) -> None:
        if self._restoring.run(self._stop):
            self._restored()
            self._serve()
            self.background.wake()

    def _restored(self) -> None:
        self.local.recover()
        self.background.watch()

    def _node_state(self) -> restorer.NodeState:
        """Return what the kubelet tracks, and what the driver published before this start. Raises ApiError."""
        if self._as_published is None:
            self._as_published = resource_slice.published_devices(self._dependencies.slice_store.list(), self.local.identity.pool)
        return restorer.NodeState(tracked=checkpoint.tracked(self._checkpoint), published=self._as_published)

    def _retry_recovery(self) -> None:
        """Retry in the background what recovery could not recover, for example because another process holds a lock."""
        self._recovery.add(self.local.report.failed)
        if self._recovery.pending:
            self._spawn("recovery", lambda: self._recovery.run(self._stop))

    def _discover(self) -> None:
        """Discover now and then at intervals, and publish changes of inventory, taints and registration."""
        while not self._stop.is_set():
            pause = self._refresh()
            self._offer()
            self.background.wait_until_due(self._stop, pause)

    def _report_health(self, report: contexts.HealthReport) -> None:
        self.health.report(report.device, report.health, report.message)

    def _is_succeeded(self) -> bool:
        return self.registrar.is_succeeded()

    def _first_discovery(self) -> None:
        """Discover once. Raises DrakitError if that fails, or if the author did not start, because the other process did."""
        if self.background.not_started:
            raise errors.JournalError(self.background.not_started)
        try:
            self.local.offered.refresh()
        except errors.DrakitError:
            raise
        except Exception as error:
            raise errors.HardwareError("discover()", f"{type(error).__name__}: {error}") from error

    def _refresh(self) -> float:
        """Discover, and return the seconds until the next discovery: earlier where the driver raised RetryError."""
        pause, reason = self._dependencies.rescan_seconds, self.local.offered.not_ready
        try:
            self.local.offered.refresh()
            if reason:
                _log.info("hardware ready")
            pool, offered = self.local.identity.pool, self.local.offered
            current = offered.current
            changed = {name: entry.reason for name, entry in current.displaced.items() if not entry.is_withheld}
            self.health.discovered({device.name: device.pool_on(pool) for device in current.flat.devices}, changed)
            self.background.displaced(current.displaced)
            if self._is_serving:
                self.background.discovered()
        except errors.RetryError as error:
            pause = min(max(error.after, RETRY_SECONDS), pause)
            if self.local.offered.not_ready != reason:
                _log.warning("hardware not ready: no devices offered", error=str(error), retry_in_s=pause)
        except errors.InventoryError as error:
            _log.error("inventory rejected: previous inventory kept", error=str(error))
        except errors.DrakitError as error:
            _log.error("discovery failed: previous inventory kept", error=str(error))
        except Exception:  # noqa: BLE001 - the driver must still unprepare claims while discover() has a bug
            _log.exception("discovery raised an unexpected error: previous inventory kept")
        return pause

    def _offer(self) -> None:
        """Publish a changed inventory, or no devices at all while the driver is not registered or its hardware is not ready."""
        with self._offering:
            is_registered = self.registrar.unregistered_for() <= self._dependencies.registration_grace
            if self.local.is_lost and self._as_published is None:
                return  # What is published now tells which hardware the driver made.
            is_ready = not self.local.offered.not_ready
            state = (self.local.offered.current.number, is_registered, self.local.context.revision, is_ready)
            if not (state[0] or not is_ready) or state == self._published:
                return
            if is_registered is not self._published[1]:
                _log.warning("driver registered again" if is_registered else "driver not registered: no devices offered")
            self._published = state
            self.publisher.offer(
                self.background.tainted(self.local.offered.current.authored) if is_registered and is_ready else inventory.Inventory()
            )

    def _guard(self) -> None:
        """Detect a lost registration and a deleted socket at intervals, and create the socket again.

        Wait where a file of another program is at the socket's path, because the other drivers of the process need it to go on.
        """
        while not self._dependencies.clock.wait(self._stop, GUARD_SECONDS):
            self.registrar.check()
            self._offer()
            if self._service.is_at_path() or self._stop.is_set():
                continue
            try:
                self._service.renew(RENEW_GRACE)
                self._blocked = ""
            except unix_sockets.OccupiedError as error:
                if str(error) != self._blocked:
                    _log.error("recreating service socket failed: retrying", error=str(error), retry_in_s=GUARD_SECONDS)
                self._blocked = str(error)
            except errors.SettingsError as error:
                _log.error("recreating service socket failed", error=str(error))
                self._fail()
                return

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guarded, args=(name, work), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - after any bug the process must end and restart
            _log.exception("background thread died", part=name)
            self._fail()

    def _fail(self) -> None:
        self.failed.set()
        self._dependencies.failed()


class NoApiServer:
    """The ``ports.ClaimList`` of a node without an API server."""

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Raise ApiError."""
        del driver, serves
        raise errors.ApiError("no API server is configured", status=503)
