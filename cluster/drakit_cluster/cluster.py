"""The local cluster: API server, scheduler, controllers, and for every node a kubelet and a runtime, in this process.

It runs as an ordinary user and writes only to its folder::

    with LocalCluster(pathlib.Path("/tmp/c1")) as cluster:
        ...  # /tmp/c1/kubeconfig, /tmp/c1/node-1/{plugins,plugins_registry,cdi}
"""

import contextlib
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from drakit_cluster.access import roles, users
from drakit_cluster.api.apiserver import ApiServer
from drakit_cluster.api.registry import Registry
from drakit_cluster.api.storage.state_log import StateLog
from drakit_cluster.api.storage.store import Store
from drakit_cluster.api.storage.watching import EventType, Watch
from drakit_cluster.cel import Selectors
from drakit_cluster.client.client import ApiClient
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.cluster_node import ClusterNode, Components, NodeFolder
from drakit_cluster.controllers import Controllers
from drakit_cluster.kubelet import Timing
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, EVENT, NODE, POD_GROUP, SERVICEACCOUNT, SLICE, TAINT_RULE
from drakit_cluster.runtime import HookRunner, Mode
from drakit_cluster.scheduling.scheduler import Scheduler

_DRIVER_NAMESPACE, _DRIVER_ACCOUNT = "drakit-system", "drakit"
_FIRST_PAUSE, _LAST_PAUSE, _GROWTH = 0.005, 0.05, 1.2
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class ClusterEvent:
    """One event of the cluster, for people. ``time`` is RFC 3339; ``warning`` is true for events of type Warning."""

    time: str
    component: str
    warning: bool
    reason: str
    kind: str
    namespace: str
    name: str
    message: str
    count: int


class LocalCluster:
    """A cluster in ``folder``, with the given nodes.

    ``gates`` apply to all components, except where ``components`` overrides them.
    ``port`` 0 selects any free port. ``mode`` says whether containers run their command. Use it as a context manager, or call
    :meth:`start` and :meth:`stop`; a stopped cluster cannot start again.

    Raises FolderError for a folder with too long a path, ValueError for an invalid node name, StateError for an unreadable state.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        nodes: Sequence[str] = ("node-1",),
        gates: FeatureGates | None = None,
        components: Components | None = None,
        port: int = 0,
        timing: Timing | None = None,
        mode: Mode = Mode.PRETEND,
        run_hook: HookRunner | None = None,
    ) -> None:
        for name in nodes:
            if not _NODE_NAME.fullmatch(name):
                raise ValueError(f"nodes: {name!r} is not a valid node name: use a-z, 0-9, '-' and '.'")
        self.folder = folder.absolute()
        self.gates = gates or FeatureGates()
        self._components = components or Components()
        state = self._components.state
        self._store = Store(log=StateLog(state) if state else None)
        self.api = Registry(self._store, gates=self.gates)
        # Any driver may run here, so it may write the claim status of every driver name.
        any_driver = roles.driver_objects(_DRIVER_NAMESPACE, _DRIVER_ACCOUNT, writes_status_of=(), follows_claims=True)
        self._driver_rights = self._components.driver_rights or any_driver
        for resource, rbac_object in self._driver_rights:
            with contextlib.suppress(errors.AlreadyExistsError):
                namespace = json_types.text(rbac_object, "metadata", "namespace") if resource.namespaced else ""
                self.api.create(resource, rbac_object, namespace=namespace)
        self.server = ApiServer(self.api, port=port)
        self._parts = contextlib.ExitStack()
        self._watches: set[Watch] = set()
        self._scheduler: Scheduler | None = None
        self._nodes = {
            name: ClusterNode(
                name,
                NodeFolder(root=self.folder / name),
                self._connector(name),
                timing=timing or Timing(),
                gates=self._components.kubelets.get(name, self.gates),
                mode=mode,
                run_hook=run_hook,
            )
            for name in nodes
        }

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The administrator's kubeconfig (0600)."""
        return self.folder / "kubeconfig"

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """The nodes in the order given."""
        return tuple(self._nodes.values())

    def node(self, name: str) -> ClusterNode:
        """Return one node; KeyError for an unknown name."""
        return self._nodes[name]

    def start(self) -> None:
        """Start everything; returns when the API answers and every node is registered. What was started is stopped again on failure."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.ExitStack() as parts:
            parts.enter_context(self.server)
            self.server.write_kubeconfig(self.kubeconfig)
            parts.callback(self.kubeconfig.unlink, missing_ok=True)
            recorder = Recorder(self.api, "drakit-cluster")
            deciding = self._components.scheduler or self.gates
            self._scheduler = Scheduler(
                self.api,
                recorder,
                Selectors(deciding),
                gates=deciding,
                binding_timeout=self._components.binding_timeout,
                metrics=self.server.metrics,
                repeated_errors=self._components.known_errors,
            )
            for part in (recorder, Controllers(self.api, recorder, gates=self._components.controllers or self.gates), self._scheduler):
                part.start()
                parts.callback(part.stop)
            for node in self.nodes:
                parts.callback(node.shut_down)
                node.start_kubelet()
                self._write_driver_kubeconfig(node)
                parts.callback(node.folder.kubeconfig.unlink, missing_ok=True)
            parts.callback(self._end_watches)
            self._parts = parts.pop_all()

    def stop(self) -> None:
        """Stop everything, containers included. Drivers keep running. A second call does nothing."""
        self._parts.close()
        self._store.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def client(self) -> ApiClient:
        """Return a client of the administrator, over HTTPS; the caller closes it."""
        return ApiClient.from_kubeconfig(self.kubeconfig)

    def driver_kubeconfig(self, node: str) -> pathlib.Path:
        """Return the kubeconfig (0600) of the driver on a node; its identity is that of the driver's service account."""
        return self.node(node).folder.kubeconfig

    def restart_kubelet(self, node: str) -> None:
        """Restart a node's kubelet; its pods keep running."""
        self.node(node).restart_kubelet()

    def events(self) -> Iterator[ClusterEvent]:
        """Yield past and new events until the cluster stops or the iterator is closed."""
        watch = self.api.watch(EVENT, since="")
        self._watches.add(watch)
        try:
            for event in watch:
                if event.type in (EventType.ADDED, EventType.MODIFIED):
                    yield _event_summary(event.object)
        finally:
            self._watches.discard(watch)
            watch.close()

    def wait_for(self, probe: Callable[[], _Result | None], *, timeout: float = 10.0, what: str = "the condition") -> _Result:
        """Call ``probe`` until it returns something true, and return that. Raises TimeoutError, which names ``what``, after ``timeout`` seconds.

        The longer it waits, the less often it calls.
        """
        deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            result = probe()
            if result:
                return result
            if time.monotonic() >= deadline:
                raise TimeoutError(f"timed out after {timeout:g} s waiting for {what}")
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LAST_PAUSE)

    def is_scheduler_current(self) -> bool:
        """Return whether the scheduler has seen every current object that it decides by, and so uses them for a pod created now.

        Like the real scheduler, it watches each kind separately: it can see a pod before an older class.
        """
        current = (
            (resource, entry.view)
            for resource in (NODE, CLASS, SLICE, TAINT_RULE, POD_GROUP, CLAIM)
            for entry in self._store.scan(resource)[0]
        )
        return self._scheduler is not None and all(self._scheduler.loop.has_observed(*observed) for observed in current)

    def _connector(self, node: str) -> Callable[[], ApiClient]:
        def connect() -> ApiClient:
            return ApiClient(server=self.server.url, ca_pem=self.server.ca_pem, token=self.server.issue_node_token(node))

        return connect

    def _write_driver_kubeconfig(self, node: ClusterNode) -> None:
        account = next((made for resource, made in self._driver_rights if resource == SERVICEACCOUNT), None)
        if account is None:
            raise ValueError("driver_rights: no ServiceAccount; add the one that the driver's pods use")
        namespace, name = (json_types.text(account, "metadata", field) for field in ("namespace", "name"))
        user = users.account_name(namespace, name)
        token = self.server.issue_token(user, users.account_groups(namespace), extra={users.NODE_NAME: (node.name,)})
        self.server.write_kubeconfig(node.folder.kubeconfig, token=token, user=user)

    def _end_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.close()


def _event_summary(event: Object) -> ClusterEvent:
    involved = json_types.mapping(event, "involvedObject")
    return ClusterEvent(
        time=json_types.text(event, "series", "lastObservedTime")
        or json_types.text(event, "eventTime")
        or json_types.text(event, "lastTimestamp"),
        component=json_types.text(event, "reportingComponent"),
        warning=json_types.text(event, "type") != "Normal",
        reason=json_types.text(event, "reason"),
        kind=json_types.text(involved, "kind"),
        namespace=json_types.text(involved, "namespace"),
        name=json_types.text(involved, "name"),
        message=json_types.text(event, "message"),
        count=json_types.number(event, "count") or 1,
    )
