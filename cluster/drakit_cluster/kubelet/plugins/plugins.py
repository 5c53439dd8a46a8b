"""The drivers registered on the node, each with one or more endpoints: whether they can be used, and their slices.

The kubelet deletes the slices of the node when it starts, and those of a driver that has been unusable for a while. It deletes only slices
with the name of the node. A driver that reconnects in time keeps its slices; a later one must publish them again.
"""

import pathlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from drakit.telemetry import logs
from drakit_cluster.client.api import Api
from drakit_cluster.client.backoff import Backoff
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet.plugins.endpoint import SERVICE, Endpoint
from drakit_cluster.kubelet.plugins.health_streams import HealthStreams
from drakit_cluster.kubelet.timing import Timing
from drakit_cluster.objects import errors
from drakit_cluster.objects.resources import SLICE

PLUGIN_TYPE = "DRAPlugin"


class RegistrationError(Exception):
    """A plugin that the kubelet refuses; the plugin gets the message."""


@dataclass(frozen=True, kw_only=True)
class PluginFacts:
    """A plugin's answer to GetInfo. ``endpoint`` is the path of its service socket."""

    type: str
    name: str
    endpoint: pathlib.Path
    versions: tuple[str, ...]

    def check(self) -> None:
        """Raise RegistrationError if the kubelet does not support the plugin."""
        if self.type != PLUGIN_TYPE:
            raise RegistrationError(f"type: no plugins of type {self.type!r} are served here; want {PLUGIN_TYPE}")
        if not self.name:
            raise RegistrationError("name: must not be empty")
        if not self.endpoint.is_absolute():
            raise RegistrationError(f"endpoint: must be an absolute path, not {str(self.endpoint)!r}")
        if SERVICE not in self.versions:
            advertised = ", ".join(self.versions) or "none"
            raise RegistrationError(f"supported_versions: {SERVICE} is not in {advertised}")


class Plugins:
    """Drivers by name. Safe to use from several threads. ``health`` watches their devices, if not None."""

    def __init__(self, timing: Timing, faults: Faults, wiper: "SliceWiper", health: HealthStreams | None = None) -> None:
        self._health = health
        self._timing = timing
        self._faults = faults
        self._wiper = wiper
        self._lock = threading.Lock()
        self._endpoints: dict[str, list[Endpoint]] = {}
        self._usable: set[str] = set()
        self._closed = False
        self._on_usable: Callable[[], None] | None = None

    def listen(self, on_usable: Callable[[], None]) -> None:
        """Call ``on_usable`` whenever a driver becomes usable."""
        self._on_usable = on_usable

    def add(self, facts: PluginFacts) -> Endpoint:
        """Add a registered instance of a driver. Raises RegistrationError for an endpoint that is registered already."""
        endpoint = Endpoint(facts.endpoint, self._timing, self._faults, lambda: self._update_usable(facts.name))
        with self._lock:
            if self._closed:
                raise RegistrationError("the kubelet is stopping")
            instances = self._endpoints.setdefault(facts.name, [])
            if any(instance.path == facts.endpoint for instance in instances):
                raise RegistrationError(f"endpoint: {facts.endpoint} is already registered for {facts.name}")
            instances.append(endpoint)
        endpoint.connect()
        if self._health is not None:
            self._health.begin(facts.name, endpoint, facts.versions)
        if self._is_closed():
            # close() may have run before the health stream existed.
            self._close(endpoint)
            raise RegistrationError("the kubelet is stopping")
        return endpoint

    def remove(self, name: str, endpoint: Endpoint) -> None:
        """Remove an instance of a driver."""
        with self._lock:
            instances = self._endpoints.get(name, [])
            if endpoint in instances:
                instances.remove(endpoint)
            if not instances:
                self._endpoints.pop(name, None)
        self._close(endpoint)
        self._update_usable(name)

    def is_registered(self, name: str) -> bool:
        """Return whether some instance of the driver is registered, usable or not."""
        with self._lock:
            return name in self._endpoints

    def is_usable(self, name: str) -> bool:
        """Return whether some instance of the driver is connected."""
        with self._lock:
            return name in self._usable

    def choose(self, name: str) -> Endpoint | None:
        """Return the instance to call: the last registered one that is connected, else the last registered one."""
        with self._lock:
            instances = self._endpoints.get(name, [])
            return next((instance for instance in reversed(instances) if instance.connected), instances[-1] if instances else None)

    def close(self) -> None:
        """Close all connections, without deleting slices."""
        with self._lock:
            self._closed = True
            endpoints = [instance for instances in self._endpoints.values() for instance in instances]
            self._endpoints.clear()
            self._usable.clear()
        for endpoint in endpoints:
            self._close(endpoint)

    def _is_closed(self) -> bool:
        with self._lock:
            return self._closed

    def _close(self, endpoint: Endpoint) -> None:
        if self._health is not None:
            self._health.end(endpoint)
        endpoint.close()

    def _update_usable(self, name: str) -> None:
        """Schedule or cancel the deletion of the driver's slices if it became unusable or usable."""
        with self._lock:
            usable = any(endpoint.connected for endpoint in self._endpoints.get(name, ()))
            was_usable, changed = name in self._usable, usable is not (name in self._usable)
            (self._usable.add if usable else self._usable.discard)(name)
        if not changed:
            return
        if was_usable:
            self._wiper.lost(name)
            return
        self._wiper.returned(name)
        if self._on_usable is not None:
            self._on_usable()


_log = logs.get_logger(__name__)


class SliceWiper:
    """Deletes slices of one node; failed deletions are retried until they succeed or :meth:`stop` is called."""

    def __init__(self, api: Api, node: str, timing: Timing, on_wipe: Callable[[str], None]) -> None:
        self._api = api
        self._node = node
        self._timing = timing
        self._on_wipe = on_wipe
        self._lock = threading.Lock()
        self._pending: dict[str, threading.Event] = {}

    def wipe_all(self) -> None:
        """Delete every slice of the node. If that fails, retry in the background."""
        try:
            self._delete("")
        except errors.ApiError as error:
            _log.warning("slice deletion failed", node=self._node, error=str(error))
            self._begin("", self._timing.wipe_retry[0])

    def lost(self, driver: str) -> None:
        """Schedule the deletion of the slices of an unusable driver, unless it is scheduled already."""
        self._begin(driver, self._timing.wipe_delay)

    def returned(self, driver: str) -> None:
        """Cancel the deletion of the slices of a driver that is usable again."""
        with self._lock:
            if cancelled := self._pending.pop(driver, None):
                cancelled.set()

    def stop(self) -> None:
        """Cancel all pending deletions."""
        with self._lock:
            for cancelled in self._pending.values():
                cancelled.set()
            self._pending.clear()

    def _begin(self, driver: str, delay: float) -> None:
        with self._lock:
            if driver in self._pending:
                return
            cancelled = self._pending[driver] = threading.Event()
        threading.Thread(target=self._run, args=(driver, delay, cancelled), name=f"wipe-{self._node}", daemon=True).start()

    def _run(self, driver: str, delay: float, cancelled: threading.Event) -> None:
        backoff = Backoff(*self._timing.wipe_retry, jitter=0.2)
        while not cancelled.wait(delay):
            try:
                self._delete(driver)
            except errors.ApiError as error:
                delay = backoff.next()
                _log.warning("slice deletion failed", node=self._node, driver=driver, error=str(error), retry_in_s=delay)
                continue
            with self._lock:
                if self._pending.get(driver) is cancelled:
                    del self._pending[driver]
            if driver:
                self._on_wipe(driver)
            return

    def _delete(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        self._api.delete_collection(SLICE, field_selector=selector)
