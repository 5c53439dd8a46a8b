"""One driver on one node, whole: the station, the kubelet's sockets and the publisher, started and stopped in the right order.

Started: journal and recovery, what the author runs beside the verbs, the service socket, the registration socket, a first look at the hardware, the
publisher. The service listens before the kubelet hears of it. Stopped the other way round, the author once the last verb has returned; slices stay
published, so that a quick restart costs nobody a device.

In a rolling update two instances serve. The younger one looks at the hardware before the kubelet hears of it, and ends where it cannot: the kubelet
prefers the younger, so one that could prepare nothing must not be known to it. The elder one finishes the calls that it has before the kubelet
closes their connection.

While the kubelet has not known the driver for a while (it refused it, or somebody deletes the registration socket again and again), no devices are
offered, because pods that got them could not start. At the start they are offered at once: the kubelet will know the driver within seconds.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import advanced, errors, inventory, lifecycle, names, ports
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.kubelet import checkpoint, dra, health, registration, server, sockets
from drakit.node import background, local_node, metrics, recovery, timing
from drakit.node.publishing import publisher
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SERVICE_THREADS = 32
DRAIN_SECONDS = 5.0
STOP_GRACE = 10.0
RENEW_GRACE = 45.0
REGISTRATION_GRACE = 30.0
GUARD_SECONDS = 2.0
JOIN_SECONDS = 5.0
RESTORE = "restore"


def _tell_nobody() -> None:
    """Whoever runs the node looks at ``Node.failed``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeDependencies:
    """The rest of the world: the API server's two ports, the kubelet's registration folder, time, and how often hardware is looked at.

    ``instance`` is the UID of the driver's pod where two processes may serve at once (a rolling update). Devices are withdrawn when the kubelet has
    not known the driver for ``registration_grace`` seconds. ``failed`` is called when a part of the driver has died of a bug.
    """

    claim_source: ports.ClaimSource
    slice_store: ports.SliceStore
    registry: pathlib.Path
    clock: ports.Clock
    rescan_seconds: float = 60.0
    form: publisher.FormChoice = publisher.FormChoice.AUTO
    instance: str = ""
    registration_grace: float = REGISTRATION_GRACE
    api: background.ApiPorts | None = None
    meter: metrics.DriverMetrics | None = None
    failed: Callable[[], None] = _tell_nobody


class Node:
    """A serving driver. ``failed`` is set when a part of it died of a bug; the process should end then and be started anew."""

    def __init__(self, spec: local_node.DriverSpec, folders: local_node.Folders, dependencies: NodeDependencies, *, node_name: str) -> None:
        self._dependencies = dependencies
        self._stop = threading.Event()
        self.failed = threading.Event()
        self.local = local_node.LocalNode.open(spec, folders, dependencies.claim_source, dependencies.meter)
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
        self.calls = InFlightCalls(timing.TimedEngine(self.local.engine, dependencies.meter) if dependencies.meter else self.local.engine)
        stale_seconds = max(health.STALE_SECONDS, 3 * dependencies.rescan_seconds)
        self.health = health.HealthBoard(spec.identity.pool, dependencies.clock, stale_seconds=stale_seconds)
        path = sockets.service_path(folders.home, sockets.check_instance(dependencies.instance))
        self._service = server.SocketServer(path, dra.register(self.calls, self.health), threads=SERVICE_THREADS)
        plugin = registration.Plugin(name=spec.driver_name, endpoint=path, services=dra.ADVERTISED, instance=dependencies.instance)
        self.registrar = registration.Registrar(plugin, dependencies.registry, dependencies.clock)
        self._offering, self._starting = threading.Lock(), threading.Lock()
        self._is_serving = False
        listing = dependencies.api.claim_list if dependencies.api else NoApiServer()
        self._restoring = recovery.RestoreLoop(self.local.restorer, listing, dependencies.clock, self._offer)
        self._published = (0, True, 0)
        self._threads: list[threading.Thread] = []
        known = background.KubeletPorts(
            is_registered=lambda: self.registrar.status.state is registration.State.REGISTERED,
            checkpoint=dependencies.registry.parent / checkpoint.FILE,
            health=self._report_health,
        )
        self.background = background.BackgroundServices(
            self.local, dependencies.claim_source, dependencies.clock, kubelet=known, api=dependencies.api, failed=self._fail
        )

    def start(self) -> None:
        """Serve and publish; returns once the sockets listen, and at once where a lost journal is to be restored before.

        Raises SettingsError when a socket cannot be made, and what the author's start raises.
        """
        try:
            self.background.start()
            if self.registrar.has_another():
                self._look_first()
            if not self.local.is_lost:
                self._serve()
        except BaseException:
            self.stop()
            raise
        if self._dependencies.meter is not None:
            metrics.add_gauges(self, self._dependencies.meter)
        if not self._is_serving:
            self._spawn(RESTORE, self._restore)
        self._spawn("discovery", self._discover)
        self._spawn("publisher", lambda: self.publisher.run(self._stop))
        self._spawn("slice-watch", lambda: self.publisher.follow(self._stop))

    def stop(self) -> None:
        """Stop serving, finish calls in flight, close the journal. Safe to call twice and after a failed start."""
        with self._starting:
            self._stop.set()
        self.publisher.wake()
        self.calls.wait_idle(DRAIN_SECONDS)
        self.registrar.stop()
        self.health.close()
        self._service.stop(grace=STOP_GRACE)
        self.background.wake()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
        is_restored = not any(thread.is_alive() and thread.name == RESTORE for thread in self._threads)
        self.background.stop(idle=self.calls.wait_idle(JOIN_SECONDS) and is_restored)
        self.local.close()

    def registration(self) -> str:
        """Empty when the kubelet knows the driver, else why it does not."""
        if not self._is_serving:
            return self._restoring.status
        told = self.registrar.status
        if told.state is registration.State.REGISTERED:
            return ""
        return f"the kubelet refused the driver: {told.error}" if told.error else "the kubelet has not registered the driver"

    def is_published(self) -> bool:
        """Whether devices were published since the start."""
        return self.publisher.published.is_set()

    def devices(self) -> inventory.Inventory:
        """What is offered now, flat, with all taints."""
        return self.background.tainted(self.local.offered.flat)

    def claims(self) -> dict[lifecycle.State, int]:
        """How many claims are in each state; raises JournalError."""
        return self.local.journal.counts()

    def device_health(self) -> dict[contexts.Health, int]:
        """How many devices are in each state of health, as the kubelet is told."""
        return dict(self.health.counts())

    @property
    def metrics_prefix(self) -> str:
        """What the names of the driver's own metrics begin with."""
        return self.local.author.metrics_prefix

    def driver_metrics(self) -> Sequence[advanced.Metric]:
        """Return the driver's own metrics."""
        return advanced.metrics_of(self.local.author)

    def _serve(self) -> None:
        """Listen for the kubelet, and let it see the driver; nothing after ``stop``."""
        with self._starting:
            if self._stop.is_set():
                return
            sockets.clear_services(self._service.path.parent)
            self._service.start()
            self.registrar.start()
            self._is_serving = True
        self._spawn("guard", self._guard)

    def _restore(self) -> None:
        """Restore the claims of a lost journal, then serve."""
        if self._restoring.run(self._stop):
            self.local.recover()
            self._serve()
            self.background.wake()

    def _discover(self) -> None:
        """Look at the hardware now and at intervals; offer what changed, whoever found out."""
        while not self._stop.is_set():
            self._look()
            self._offer()
            self.background.wait_for_news(self._stop, self._dependencies.rescan_seconds)

    def _report_health(self, report: contexts.HealthReport) -> None:
        self.health.report(report.device, report.health, report.message)

    def _is_succeeded(self) -> bool:
        return self.registrar.is_succeeded()

    def _look_first(self) -> None:
        """Look at the hardware; raises DrakitError where it cannot be offered."""
        try:
            self.local.offered.refresh()
        except errors.DrakitError:
            raise
        except Exception as error:
            raise errors.HardwareError("discover()", f"{type(error).__name__}: {error}") from error

    def _look(self) -> None:
        try:
            self.local.offered.refresh()
            pool = self.local.identity.pool
            self.health.discovered({device.name: device.pool_on(pool) for device in self.local.offered.flat.devices})
            if self._is_serving:
                self.background.discovered()
        except errors.InventoryError as error:
            _log.error("inventory rejected: previous inventory kept", error=str(error))
        except errors.DrakitError as error:
            _log.error("discovery failed: previous inventory kept", error=str(error))
        except Exception:  # noqa: BLE001 - claims can still be unprepared while discover() has a bug
            _log.exception("discovery raised an unexpected error: previous inventory kept")

    def _offer(self) -> None:
        """Publish what changed: the inventory, or no devices at all while the kubelet does not know the driver."""
        with self._offering:
            known = self.registrar.unregistered_for() <= self._dependencies.registration_grace
            now = (self.local.offered.changes, known, self.local.context.revision)
            if not now[0] or now == self._published:
                return
            if known is not self._published[1]:
                _log.warning("driver registered again" if known else "driver not registered: no devices offered")
            self._published = now
            self.publisher.offer(self.background.tainted(self.local.offered.inventory) if known else inventory.Inventory())

    def _guard(self) -> None:
        """Notice that the kubelet forgot the driver, and that somebody deleted a socket, which is then made again."""
        while not self._dependencies.clock.wait(self._stop, GUARD_SECONDS):
            self.registrar.look()
            self._offer()
            if self._service.is_at_path() or self._stop.is_set():
                continue
            try:
                self._service.renew(RENEW_GRACE)
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
        except Exception:  # noqa: BLE001 - whatever it was, the process must end and be started anew
            _log.exception("a part of the driver died", part=name)
            self._fail()

    def _fail(self) -> None:
        self.failed.set()
        self._dependencies.failed()


class NoApiServer:
    """A ``ports.ClaimList`` of a node that has no API server to ask."""

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Raise ApiError."""
        del driver, serves
        raise errors.ApiError("there is no API server to ask", status=503)


class InFlightCalls:
    """``ports.ClaimEngine`` before another one, counting."""

    def __init__(self, engine: ports.ClaimEngine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._running = 0
        self._is_awaited = False

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, claims.Outcome]:
        """As the engine."""
        self._started()
        try:
            return self._engine.prepare(refs, caller)
        finally:
            self._ended()

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """As the engine."""
        self._started()
        try:
            return self._engine.unprepare(refs, caller)
        finally:
            self._ended()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until none is running; whether that is so."""
        with self._changed:
            self._is_awaited = True
            return self._changed.wait_for(lambda: not self._running, seconds)

    def _started(self) -> None:
        with self._guard:
            self._running += 1

    def _ended(self) -> None:
        with self._guard:
            self._running -= 1
            if self._is_awaited:
                self._changed.notify_all()
