"""The kubelet of one node: its own threads, its own identity towards the API server, plugins over unix sockets.

Its state is in the API, in the runtime, which outlives it, and in its checkpoint. It can therefore stop at any time, and a new kubelet can
replace it.
"""

import pathlib
import threading
from dataclasses import dataclass

import grpc

from drakit.telemetry import logs
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import Change, Loop, Selection, uid_of, version_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.faults import Faults
from drakit_cluster.kubelet import node_status
from drakit_cluster.kubelet.plugins.health import HealthTable
from drakit_cluster.kubelet.plugins.health_streams import HealthStreams
from drakit_cluster.kubelet.plugins.plugins import Plugins, SliceWiper
from drakit_cluster.kubelet.plugins.registration import Registrar
from drakit_cluster.kubelet.pods import pod_resources
from drakit_cluster.kubelet.pods.pod_resources import PodResources
from drakit_cluster.kubelet.pods.pod_status import PodHealth
from drakit_cluster.kubelet.pods.pod_worker import PodWorker, Services
from drakit_cluster.kubelet.pods.preparation import Preparation, PreparationError
from drakit_cluster.kubelet.pods.records import Checkpoint
from drakit_cluster.kubelet.timing import Timing
from drakit_cluster.objects import errors
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import NODE, POD
from drakit_cluster.runtime import Runtime

_log = logs.get_logger(__name__)

_JOIN_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """The folders and node of a kubelet. ``labels`` are additional labels of the node. ``pod_resources`` is the socket of that service, or None."""

    node: str
    registry: pathlib.Path
    checkpoint: pathlib.Path
    labels: tuple[tuple[str, str], ...] = ()
    pod_resources: pathlib.Path | None = None


class Kubelet:
    """One run of a node's kubelet. The constructor raises CheckpointError for a damaged checkpoint."""

    def __init__(
        self,
        api: Api,
        place: Place,
        runtime: Runtime,
        *,
        timing: Timing | None = None,
        faults: Faults | None = None,
        gates: FeatureGates | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self._api = api
        self._place = place
        self._runtime = runtime
        self._timing = timing or Timing()
        self._recorder = Recorder(api, "kubelet", place.node)
        self._lease = node_status.NodeLease(api, place.node)
        self._wiper = SliceWiper(api, place.node, self._timing, self._record_wipe)
        gates = gates or FeatureGates()
        self._version = gates.version
        table = HealthTable(self._timing.health_valid) if gates.on(Gate.RESOURCE_HEALTH) else None
        streams = HealthStreams(table, self._timing.health_retry, self._poke_users) if table is not None else None
        self.plugins = Plugins(self._timing, self.faults, self._wiper, streams)
        self.preparation = Preparation(api, self.plugins, Checkpoint(place.checkpoint), gates)
        self._registrar = Registrar(place.registry, self.plugins, self._timing, self._record_registration)
        health = PodHealth(preparation=self.preparation, table=table, messages=gates.on(Gate.RESOURCE_HEALTH_MESSAGE))
        self._services = Services(
            api=api, recorder=self._recorder, preparation=self.preparation, health=health, runtime=runtime, timing=self._timing
        )
        self._lock = threading.Lock()
        self._workers: dict[str, PodWorker] = {}
        self._ended: dict[str, int] = {}
        self._pod_resources = PodResources(self.preparation, self._known_pods)
        self._server: grpc.Server | None = None
        self._stopping = threading.Event()
        self._reconcile_soon = threading.Event()
        self._loop = Loop(
            api, f"kubelet-{place.node}", [Selection(resource=POD, field_selector=f"spec.nodeName={place.node}")], self._observe, _wait
        )
        self._reconciler = threading.Thread(target=self._reconcile, name=f"reconcile-{place.node}", daemon=True)

    def start(self) -> None:
        """Register the node, delete its old slices, and start. Raises ApiError if the node cannot be registered."""
        labels = dict(self._place.labels)
        self._node = node_status.register(self._api, self._place.node, labels, mode=self._runtime.mode, version=self._version)
        self._lease.start(self._node)
        self._recorder.start()
        self._wiper.wipe_all()
        self._runtime.listen(self._poke)
        self.plugins.listen(self._poke_all)
        self._registrar.start()
        self._loop.start()
        self._reconciler.start()
        if self._place.pod_resources is not None:
            self._server = pod_resources.serve(self._pod_resources, self._place.pod_resources)

    def stop(self) -> None:
        """Stop; containers and drivers keep running. Also stops a kubelet whose start failed or that never started."""
        self._stopping.set()
        self._lease.stop()
        if self._server is not None:
            self._server.stop(0).wait()
        self._reconcile_soon.set()
        self._runtime.listen(None)
        self._loop.stop()
        with self._lock:
            workers = list(self._workers.values())
        self._registrar.stop()
        self._wiper.stop()
        for worker in workers:
            worker.stop()
        self.plugins.close()
        for worker in workers:
            worker.join(_JOIN_SECONDS)
        if self._reconciler.ident is not None:
            self._reconciler.join(_JOIN_SECONDS)
        self._recorder.stop()

    def _observe(self, change: Change) -> None:
        """Send a change to the pod's worker, and start a worker if the pod needs one.

        Changes from before the end of a worker may arrive later. They must not start a new one.
        """
        pod, uid = change.object, uid_of(change.object)
        with self._lock:
            worker = self._workers.get(uid)
            ended_version = self._ended.pop(uid, 0) if change.deleted else self._ended.get(uid, 0)
            if worker is None:
                if version_of(pod) <= ended_version or not self._needs_worker(pod, deleted=change.deleted):
                    return
                worker = self._workers[uid] = PodWorker(pod, self._services, self._remove_worker)
                worker.update(pod, deleted=change.deleted)
                worker.start()
                return
        worker.update(pod, deleted=change.deleted)

    def _needs_worker(self, pod: Object, *, deleted: bool) -> bool:
        uses_node = self._runtime.has_sandbox(uid_of(pod)) or self.preparation.has(uid_of(pod))
        if deleted:
            return uses_node
        return uses_node or pod_claims.is_deleting(pod) or not pod_claims.is_terminal(pod)

    def _remove_worker(self, worker: PodWorker) -> None:
        with self._lock:
            del self._workers[worker.uid]
            if not worker.deleted:
                self._ended[worker.uid] = worker.version

    def _known_pods(self) -> list[Object]:
        with self._lock:
            workers = list(self._workers.values())
        return [worker.pod for worker in workers]

    def _poke(self, uid: str) -> None:
        with self._lock:
            worker = self._workers.get(uid)
        if worker is not None:
            worker.poke()

    def _poke_users(self, driver: str) -> None:
        """Make the pods that have devices of a driver check their health again."""
        for uid in self.preparation.pods(driver):
            self._poke(uid)

    def _poke_all(self) -> None:
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.poke(retry=True)
        self._reconcile_soon.set()

    def _reconcile(self) -> None:
        """Unprepare the claims of pods that were deleted while no kubelet ran, periodically and when a driver becomes usable."""
        while True:
            self._reconcile_soon.wait(self._timing.reconcile)
            self._reconcile_soon.clear()
            if self._stopping.is_set():
                return
            with self._lock:
                pods_with_workers = set(self._workers)
            for uid in self.preparation.pods() - pods_with_workers:
                try:
                    if not self._exists(uid):
                        self._runtime.stop(uid, 0)
                        self._runtime.remove(uid)
                        self.preparation.unprepare(uid)
                except (PreparationError, errors.ApiError) as error:
                    _log.info("unprepare failed", pod=uid, error=str(error))

    def _exists(self, uid: str) -> bool:
        pods = self._api.list(POD, field_selector=f"spec.nodeName={self._place.node}").items
        return any(uid_of(pod) == uid for pod in pods)

    def _record_registration(self, driver: str) -> None:
        self._recorder.normal(NODE, self._node, "DriverRegistered", f"driver {driver} is registered on {self._place.node}")
        self._poke_all()

    def _record_wipe(self, driver: str) -> None:
        message = f"driver {driver} was unusable for {self._timing.wipe_delay:g} s: its slices of {self._place.node} are deleted"
        self._recorder.warning(NODE, self._node, "SlicesDeleted", message)


def _wait() -> None:
    """Return None: no call is due, because every change goes to a worker at once."""
