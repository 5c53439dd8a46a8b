"""Keep the ResourceSlices of a node's pools, or of one pool of the cluster, equal to the inventory that the driver offers.

The publisher reconciles when it is woken and at a long interval. It slows down after repeated writes, and retries errors with growing pauses.

Invariants:
1. One change is one PUT; an idle re-sync writes nothing.
2. Nothing is offered that the API server would store incorrectly. Dropped fields are detected from the server's schema and with probe slices before
   anything that depends on them is published, and again in every answer. The inventory is then reduced to what is correct without the fields. The
   result holds until the server's version changes and a new probe has answered. An idle node writes nothing, at any interval.
3. Whatever happens to the slices (the kubelet's wipe, a hand edit, a lost write), the next reconciliation repairs it.
4. An unreachable API server is normal: the publisher keeps the last offer and retries with growing pauses.
5. Of two instances in a rolling update the younger one decides the stored slices. The older one writes its own changes only, and repairs nothing
   that the younger one may have written. Either one recreates slices that are gone.
6. Each pool has a generation of its own, and a change writes slices of its pool only. The slices of a pool without devices are deleted, unless it
   is the last one. A pool that cannot be written does not block the others. A pool that lost devices is written before those that got them.
"""

import abc
import collections
import enum
import http
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import backoff, errors, inventory, ports
from drakit.core.slices import feature_gates, resource_slice
from drakit.core.slices import reconcile as reconciles
from drakit.node.publishing import feature_probe, slice_pages
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
RESYNC = 600.0
SETTLE = 0.05
LONGEST_SETTLE = 30.0
WRITES_WINDOW = 60.0
WRITES_MAX = 16
ROUNDS_MAX = 5
_COUNTERS_BESIDE_DEVICES = "v1.34."
"""The version that stores a slice with counters alone, but refuses devices that consume counters of another slice."""
_ALTERED = "slice altered by another program: kept as stored"
_UNREDUCED = "slice fields dropped by the API server: kept as stored"
_ENABLE = "enable these feature gates in the API server and the scheduler, then restart the driver"
_UPDATE = "update the API server to Kubernetes 1.37, or leave these fields out"

Target = feature_probe.Target


class SlicePublisher(abc.ABC):
    """The base of the publishers of a node's pools and of the cluster's pools; it reconciles the slices of a store with an offer.

    ``published`` is set after the first successful reconciliation. ``run`` and ``follow`` work until stopped.
    """

    def __init__(self, driver: str, store: ports.SliceStore, clock: ports.Clock, meter: ports.Meter | None = None) -> None:
        self._driver = driver
        self._store = store
        self._clock = clock
        self._meter: ports.Meter = meter or ports.Unmeasured()
        self._write_times: collections.deque[float] = collections.deque(maxlen=WRITES_MAX)
        self._wake = threading.Event()
        self.published = threading.Event()

    @abc.abstractmethod
    def reconcile(self) -> int:
        """Reconcile once, and return the number of writes. Raises DrakitError."""

    def wake(self) -> None:
        """Reconcile now."""
        self._wake.set()

    def follow(self, stop: threading.Event) -> None:
        """Wake at every change of the slices until ``stop`` is set."""
        for _ in self._store.watch(stop):
            self.wake()

    def run(self, stop: threading.Event) -> None:
        """Reconcile when woken and every ``RESYNC`` seconds, until ``stop`` is set and ``wake`` is called."""
        pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.is_set():
            self._clock.wait(self._wake, backoff.jittered(RESYNC))
            self._wake.clear()
            if stop.is_set():
                return
            try:
                writes = self.reconcile()
                if writes:
                    self._write_times.append(self._clock.monotonic())
                    self._meter.published(writes)
                pauses.reset()
                self._clock.wait(stop, self._settle())
            except errors.DrakitError as error:
                self._meter.failed_to_publish()
                pause = backoff.jittered(pauses.next())
                _log.warning("publishing failed", driver=self._driver, error=str(error), retry_in_s=round(pause, 1))
                self._clock.wait(stop, pause)
                self._wake.set()

    def _changed(self) -> None:
        """Publish a changed offer at once, without the delay after repeated writes."""
        self._write_times.clear()
        self.wake()

    def _settle(self) -> float:
        """Return the seconds until the next reconciliation.

        They double with every write of the last minute, so that two writers that disagree slow down.
        """
        since = self._clock.monotonic() - WRITES_WINDOW
        recent = sum(write_time > since for write_time in self._write_times)
        return float(min(SETTLE * 2**recent, LONGEST_SETTLE))


class FormChoice(enum.Enum):
    """The form of published slices: mixins where the server stores them (auto), or always one form."""

    AUTO = "auto"
    FLAT = "flat"
    MIXINS = "mixins"


Pages = Mapping[str, tuple[resource_slice.Page, ...]]
"""The pages of each pool, by its name."""


class _ConflictError(Exception):
    """The slice to update was deleted or changed since it was listed."""

    def __init__(self, name: str, error: errors.ApiError) -> None:
        super().__init__(str(error))
        self.name = name


class Publisher(SlicePublisher):
    """The publisher of the inventory last passed to ``offer``; ``run`` works until stopped, ``reconcile`` runs once."""

    def __init__(
        self,
        target: Target,
        *,
        store: ports.SliceStore,
        clock: ports.Clock,
        form: FormChoice = FormChoice.AUTO,
        meter: ports.Meter | None = None,
        is_succeeded: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(target.driver, store, clock, meter)
        self._is_succeeded = is_succeeded
        self._completed: inventory.Inventory | None = None
        self._target = target
        self._form = form
        self._offered: inventory.Inventory | None = None
        self._used: frozenset[str] = frozenset()
        self._logged: frozenset[str] = frozenset()
        self._server = slice_pages.Server()
        self._version = ""
        self._lacks: frozenset[str] = frozenset()
        self._due_probes: frozenset[feature_probe.Probe] = frozenset(feature_probe.Probe)
        self._paged: tuple[inventory.Inventory, slice_pages.Server, Pages] | None = None
        self._altered: dict[tuple[str, int], resource_slice.Page] = {}
        self._stored: tuple[resource_slice.Page, ...] = ()

    @property
    def stores_sharing(self) -> bool | None:
        """Return whether the API server stores the fields of shared devices; None while that is unknown."""
        return self._server.stores.get("DRAConsumableCapacity")

    def offer(self, offered: inventory.Inventory) -> None:
        """Publish this inventory from now on. Return before it is written."""
        self._used = feature_gates.used_by(offered)
        self._offered = offered
        self._changed()

    def reconcile(self) -> int:
        """Make the stored slices equal to the offer, and return the number of writes. Raises ApiError or InventoryError."""
        offered = self._offered
        if offered is None:
            return 0
        self._probe()
        writes = 0
        for _ in range(ROUNDS_MAX):
            try:
                round_writes, dropped = self._reconcile_once(offered)
            except _ConflictError as error:
                _log.info("slice update conflict: publishing again", slice=error.name, error=str(error))
                continue
            writes += round_writes
            if not dropped:
                self._completed = offered
                self.published.set()
                return writes
            self._server = self._server.with_answer(dropped=dropped)
            self._log_dropped(dropped)
        raise errors.ApiError(f"slices changed or were stored differently while they were written, {ROUNDS_MAX} times in a row")

    def _probe(self) -> None:
        """Detect the fields that the server stores before publishing anything that depends on them, and again when its version changes.

        An earlier result stays valid until the new probe has answered.
        """
        described = self._store.server()
        if described.version != self._version:
            self._version, self._due_probes = described.version, frozenset(feature_probe.Probe)
        # No probe answers this one: the schema alone says which form of node resources the server has.
        field = frozenset({feature_gates.NODE_RESOURCES_FIELD})
        self._server = self._server.with_answer(stored=field - described.lacks, dropped=described.lacks)
        self._lacks = described.lacks
        self._log_dropped(self._used)
        wanted = feature_probe.needed_probes(self._used, mixins=self._form is FormChoice.AUTO, lacks=described.lacks) & self._due_probes
        is_clean = False
        for probe in sorted(wanted, key=lambda probe: probe.value):
            gates = feature_probe.GATES[probe] - described.lacks
            try:
                if not is_clean:
                    # Otherwise failed deletions would add a probe slice at every attempt.
                    self._delete_all([published for published in self._store.list() if _is_probe(published)])
                    is_clean = True
                dropped, layout = feature_probe.run_probe(probe, self._target, self._store, described.lacks)
            except errors.ApiError as error:
                if not gates <= self._server.stores.keys():
                    raise
                _log.warning("probe slice failed: last results kept", question=probe.value, error=str(error))
                continue
            if probe is feature_probe.Probe.COUNTERS:
                if described.version.startswith(_COUNTERS_BESIDE_DEVICES):
                    layout, dropped = resource_slice.Layout.TOGETHER, dropped | {"DRAResourceSliceMixins"}
                layout = layout or resource_slice.Layout.APART
            self._server = self._server.with_answer(stored=gates - dropped, dropped=dropped, layout=layout)
            self._log_dropped(dropped - described.lacks)
            self._due_probes -= {probe}

    def _log_dropped(self, gates: frozenset[str]) -> None:
        """Log once those of the gates whose fields the server drops."""
        dropped = frozenset(gate for gate in gates & slice_pages.GATES if self._server.drops(gate))
        newly_dropped = dropped - self._logged
        self._logged = dropped | frozenset(gate for gate in self._logged if self._server.drops(gate))
        for features, fix in ((newly_dropped - self._lacks, _ENABLE), (newly_dropped & self._lacks, _UPDATE)):
            if features:
                log = _log.warning if features - feature_gates.HARMLESS else _log.info
                effect = "; ".join(feature_gates.EFFECTS[gate] for gate in sorted(features))
                log("API server drops fields", features=sorted(features), effect=effect, fix=fix)

    def _reconcile_once(self, offered: inventory.Inventory) -> tuple[int, frozenset[str]]:
        """List the slices once and write each pool's changes; return the number of writes and the features that the server dropped."""
        listed = self._store.list()
        is_succeeded = offered is self._completed and self._is_succeeded()
        if is_succeeded and any(not _is_probe(listed_slice) for listed_slice in listed):
            return 0, frozenset()
        pools = self._pages_of(offered)
        by_pool = {pool: [listed_slice for listed_slice in listed if listed_slice.spec.pool.name == pool] for pool in pools}
        unwanted = [listed_slice for listed_slice in listed if listed_slice.spec.pool.name not in pools]
        writes = 0 if is_succeeded else self._delete_all(unwanted)
        # The last stored pages keep the times of taints, so that a slice that another program deleted comes back with them.
        earlier = [*self._stored, *(listed_slice.spec.page for listed_slice in listed)]
        stored: list[resource_slice.Published] = []
        dropped: frozenset[str] = frozenset()
        failure: errors.ApiError | None = None
        for pool in sorted(pools, key=lambda name: not _loses(by_pool[name], pools[name])):
            try:
                pool_writes, pool_slices, pool_dropped = self._write(pool, pools[pool], by_pool[pool], earlier)
            except errors.ApiError as error:
                failure = failure or error
                continue
            writes, stored, dropped = writes + pool_writes, [*stored, *pool_slices], dropped | pool_dropped
        if failure is not None:
            raise failure
        if offered.devices:
            self._stored = tuple(published.spec.page for published in stored)
        return writes, dropped

    def _write(
        self,
        pool: str,
        pages: Sequence[resource_slice.Page],
        present: Sequence[resource_slice.Published],
        earlier: Sequence[resource_slice.Page],
    ) -> tuple[int, Sequence[resource_slice.Published], frozenset[str]]:
        """Write the changes of one pool, and return the number of writes, its slices after them, and the features that the server dropped."""
        target = self._target
        wanted = [reconciles.adopt(self._altered.get((pool, index), page), earlier) for index, page in enumerate(pages)]
        changes = reconciles.plan(wanted, present, driver=target.driver, node=target.node, pool=pool, reach=target.reach)
        writes = self._delete_all(changes.deletes)
        answers = [(update.index, update.spec, self._update(update)) for update in changes.updates]
        answers += [(create.index, create.spec, self._store.create(create)) for create in changes.creates]
        deleted = {published.name for published in changes.deletes}
        written = (answer for *_, answer in answers)
        stored = {published.name: published for published in (*present, *written) if published.name not in deleted}
        writes += len(answers)
        if writes:
            _log.info("slices published", driver=target.driver, pool=pool, pages=len(wanted), writes=writes)
        dropped = (self._compare((pool, index), sent, answer.spec) for index, sent, answer in answers)
        return writes, list(stored.values()), frozenset().union(*dropped)

    def _delete_all(self, slices: Sequence[resource_slice.Published]) -> int:
        for published in slices:
            self._store.delete(published)
        return len(slices)

    def _update(self, update: resource_slice.Update) -> resource_slice.Published:
        try:
            return self._store.update(update)
        except errors.ApiError as error:
            # The kubelet deletes a driver's slices when it starts, and another program may change one; the next round handles both.
            if error.status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
                raise _ConflictError(update.published.name, error) from error
            raise

    def _compare(self, position: tuple[str, int], sent: resource_slice.SliceSpec, stored: resource_slice.SliceSpec) -> frozenset[str]:
        """Return the features whose fields the server dropped, and for which the offer must be reduced.

        If no feature explains a difference, or no reduction avoids it, accept the page as stored and log that once.
        """
        dropped = frozenset(reconciles.dropped(sent.page, stored.page))
        if dropped and not dropped & slice_pages.GATES:
            pool, index = position
            _log.error(_ALTERED if feature_gates.UNKNOWN in dropped else _UNREDUCED, pool=pool, index=index, fields=sorted(dropped))
            self._altered[position] = stored.page
            return frozenset()
        return dropped

    def _pages_of(self, offered: inventory.Inventory) -> Pages:
        """Return the pages of each pool that this server stores correctly, cached until the offer or the server's description changes."""
        if self._paged is None or self._paged[0] is not offered or self._paged[1] != self._server:
            inventory.check_node_selection(offered, self._target.reach)
            writes_mixins = self._form is FormChoice.MIXINS or (
                self._form is FormChoice.AUTO and not self._server.drops("DRAResourceSliceMixins")
            )
            form = resource_slice.Form.MIXINS if writes_mixins else resource_slice.Form.FLAT
            parts = inventory.by_pool(inventory.with_partition_domain(offered, self._target.driver), self._target.pool)
            self._paged = (offered, self._server, {name: slice_pages.pages(part, self._server, form) for name, part in parts.items()})
            self._altered = {}
        return self._paged[2]


def _is_probe(published: resource_slice.Published) -> bool:
    return published.spec.pool.name.endswith(resource_slice.PROBE_SUFFIX)


def _loses(stored: Sequence[resource_slice.Published], wanted: Sequence[resource_slice.Page]) -> bool:
    """Return whether stored devices of a pool are no longer wanted in it."""
    names = {device.name for page in wanted for device in page.devices}
    return any(device.name not in names for published in stored for device in published.spec.page.devices)
