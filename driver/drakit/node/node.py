"""One driver on one node, whole: the station, the kubelet's sockets and the publisher, started and stopped in the right order.

Started: journal and recovery, a first look at the hardware, the service socket, the registration socket, the publisher. The service listens before
the kubelet hears of it. Stopped the other way round; slices stay published, so that a quick restart costs nobody a device.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable

from drakit.core import errors, ports
from drakit.kubelet import dra, registration, server
from drakit.node import publisher, station
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SERVICES = ("v1.DRAPlugin",)
SERVICE_THREADS = 32
STOP_GRACE = 10.0
GUARD_SECONDS = 1.0
JOIN_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outside:
    """The rest of the world: the API server's two ports, the kubelet's registration folder, time, and how often hardware is looked at."""

    claim_source: ports.ClaimSource
    slice_store: ports.SliceStore
    registry: pathlib.Path
    clock: ports.Clock
    rescan_seconds: float = 60.0
    form: publisher.FormChoice = publisher.FormChoice.AUTO


class Node:
    """A serving driver. ``failed`` is set when a part of it died of a bug; the process should end then and be started anew."""

    def __init__(self, post: station.Post, folders: station.Folders, outside: Outside, *, node_name: str) -> None:
        self._outside = outside
        self._stop = threading.Event()
        self.failed = threading.Event()
        self.station = station.Station.open(post, folders, outside.claim_source)
        target = publisher.Target(driver=post.driver_name, node=node_name, pool=post.place.pool)
        self.publisher = publisher.Publisher(target, store=outside.slice_store, clock=outside.clock, form=outside.form)
        self._service = server.SocketServer(
            folders.home / "dra.sock", dra.DraService(self.station.engine).register, threads=SERVICE_THREADS
        )
        plugin = registration.Plugin(name=post.driver_name, endpoint=self._service.path, services=SERVICES)
        self.registrar = registration.Registrar(plugin, outside.registry, outside.clock)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Serve and publish; returns once the sockets listen. Raises SettingsError when a socket cannot be made."""
        try:
            self._service.start()
            self.registrar.start()
        except BaseException:
            self.stop()
            raise
        self._spawn("discovery", self._discover)
        self._spawn("guard", self._guard)
        self._spawn("publisher", lambda: self.publisher.run(self._stop))
        self._spawn("slice-watch", lambda: self.publisher.follow(self._stop))

    def stop(self) -> None:
        """Stop serving, finish calls in flight, close the journal. Safe to call twice and after a failed start."""
        self._stop.set()
        self.publisher.wake()
        self.registrar.stop()
        self._service.stop(grace=STOP_GRACE)
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
        self.station.close()

    def _discover(self) -> None:
        """Look at the hardware now and at intervals; offer what changed, whoever found out."""
        published = 0
        while not self._stop.is_set():
            self._look()
            if self.station.offered.changes != published:
                published = self.station.offered.changes
                self.publisher.offer(self.station.offered.inventory)
            self._outside.clock.wait(self._stop, self._outside.rescan_seconds)

    def _look(self) -> None:
        try:
            self.station.offered.refresh()
        except errors.InventoryError as error:
            _log.error("discover() offers what the API refuses; what was offered stays offered", error=str(error))
        except errors.DrakitError as error:
            _log.error("cannot read the hardware; what was offered stays offered", error=str(error))
        except Exception:  # noqa: BLE001 - claims can still be unprepared while discover() has a bug
            _log.exception("bug in discover(); what was offered stays offered")

    def _guard(self) -> None:
        """Notice that somebody deleted the service socket: only a new process makes another, and the kubelet cannot call until then."""
        while not self._outside.clock.wait(self._stop, GUARD_SECONDS):
            if not self._service.is_at_path() and not self._stop.is_set():
                _log.error("the service socket was deleted", socket=str(self._service.path))
                self.failed.set()
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
            self.failed.set()
