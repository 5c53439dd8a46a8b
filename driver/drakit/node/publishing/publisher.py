"""Keep the ResourceSlices of a node's pools, or of one pool of the cluster, equal to what the driver offers.

The publisher looks at every wake, now and then without one, less often the more there was to write, and with growing pauses after errors.

Invariants:
1. One change is one PUT; an idle re-sync writes nothing.
2. Nothing is offered that the API server would store untruly: what it drops is found in its schema and on probe slices before anything that depends
   on it goes out, and on every answer after that; then the inventory is reduced to what is true without the field. What was found holds until the
   server's version changes and a new answer is there. An idle node writes nothing, at any interval.
3. Whatever happens to the slices (the kubelet's wipe, a hand edit, a lost write), the next reconciliation mends it.
4. The API server being away is normal: the last offer is kept and tried again with growing pauses.
5. Of two instances in a rolling update the younger one decides what is stored: the elder one writes what changes for itself, and mends nothing
   that the younger one may have written. Slices that are gone are made again by either.
6. Each pool has a generation of its own, and a change writes slices of its pool only. The slices of a pool without devices are deleted, unless it
   is the last one. A pool that cannot be written does not keep back the others. A pool that lost devices is written before those that got them.
"""

import abc
import collections
import dataclasses
import enum
import http
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import backoff, errors, inventory, ports
from drakit.core.slices import feature_gates, mixin_factoring, paging, resource_slice
from drakit.core.slices import reconcile as reconciles
from drakit.node.publishing import feature_probe
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
RESYNC = 600.0
SETTLE = 0.05
LONGEST_SETTLE = 30.0
REPAIRS_WINDOW = 60.0
REPAIRS_MAX = 16
ROUNDS_MAX = 5
_ALTERED = "slice altered by another program: kept as stored"
_UNREDUCED = "slice fields dropped by the API server: kept as stored"

Target = feature_probe.Target


class SlicePublisher(abc.ABC):
    """Keeps the slices of a store equal to an offer; base of the publishers of a node's pool and of a cluster's pools.

    ``published`` is set once the slices have been equal. ``run`` and ``follow`` work until stopped.
    """

    def __init__(self, driver: str, store: ports.SliceStore, clock: ports.Clock, meter: ports.Meter | None = None) -> None:
        self._driver = driver
        self._store = store
        self._clock = clock
        self._meter: ports.Meter = meter or ports.Unmeasured()
        self._repairs: collections.deque[float] = collections.deque(maxlen=REPAIRS_MAX)
        self._wake = threading.Event()
        self.published = threading.Event()

    @abc.abstractmethod
    def reconcile(self) -> int:
        """One round; the number of writes. Raises DrakitErrors."""

    def wake(self) -> None:
        """Look at the slices soon."""
        self._wake.set()

    def follow(self, stop: threading.Event) -> None:
        """Wake at every change of the slices, whoever made it, until ``stop`` is set."""
        for _ in self._store.watch(stop):
            self.wake()

    def run(self, stop: threading.Event) -> None:
        """Reconcile at every wake, and now and then without one, until ``stop`` is set and ``wake`` called."""
        pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.is_set():
            self._clock.wait(self._wake, backoff.jittered(RESYNC))
            self._wake.clear()
            if stop.is_set():
                return
            try:
                writes = self.reconcile()
                if writes:
                    self._repairs.append(self._clock.monotonic())
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
        """Something else is offered now, and nobody disagrees with it yet."""
        self._repairs.clear()
        self.wake()

    def _settle(self) -> float:
        """Seconds until the next look: longer with every write of the last minute, so that two who disagree do not fight at full speed."""
        since = self._clock.monotonic() - REPAIRS_WINDOW
        recent = sum(moment > since for moment in self._repairs)
        return float(min(SETTLE * 2**recent, LONGEST_SETTLE))


class FormChoice(enum.Enum):
    """How slices are written: mixins where the server stores them (auto), or always one form."""

    AUTO = "auto"
    FLAT = "flat"
    MIXINS = "mixins"


GATES = frozenset[str]().union(*feature_probe.GATES.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """What the API server was seen to store: the feature gates whose fields it stores or drops. Fields of an absent gate count as stored."""

    stores: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    layout: resource_slice.Layout = resource_slice.Layout.APART

    def drops(self, gate: str) -> bool:
        """Whether the fields of this feature gate are known to be dropped."""
        return self.stores.get(gate) is False

    def learned(
        self, *, stored: frozenset[str] = frozenset(), dropped: frozenset[str], layout: resource_slice.Layout | None = None
    ) -> "Server":
        """Return the server after an answer about these feature gates."""
        answers = {**dict.fromkeys(stored, True), **dict.fromkeys(dropped & GATES, False)}
        return Server(stores={**self.stores, **answers}, layout=layout or self.layout)


Pages = Mapping[str, tuple[resource_slice.Page, ...]]
"""The pages of each pool, by its name."""


class _OvertakenError(Exception):
    """The slice that was to be replaced is gone, or another by now: what was listed holds no more."""

    def __init__(self, name: str, error: errors.ApiError) -> None:
        super().__init__(str(error))
        self.name = name


class Publisher(SlicePublisher):
    """Publishes what ``offer`` was last given; ``run`` works until stopped, ``reconcile`` does one round."""

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
        self._server = Server()
        self._version = ""
        self._due: frozenset[feature_probe.Question] = frozenset(feature_probe.Question)
        self._paged: tuple[inventory.Inventory, Server, Pages] | None = None
        self._altered: dict[tuple[str, int], resource_slice.Page] = {}
        self._stored: tuple[resource_slice.Page, ...] = ()

    @property
    def stores_sharing(self) -> bool | None:
        """Whether the API server stores what makes a device shared; None while that is not known."""
        return self._server.stores.get("DRAConsumableCapacity")

    def offer(self, offered: inventory.Inventory) -> None:
        """Publish this inventory from now on; returns before anything is written."""
        self._offered = offered
        self._changed()

    def reconcile(self) -> int:
        """Make the stored slices equal to the offer; the number of writes. Raises ApiError or InventoryError."""
        offered = self._offered
        if offered is None:
            return 0
        self._learn(offered)
        writes = 0
        for _ in range(ROUNDS_MAX):
            try:
                done, dropped = self._round(offered)
            except _OvertakenError as error:
                _log.info("slice update conflict: publishing again", slice=error.name, error=str(error))
                continue
            writes += done
            if not dropped:
                self._completed = offered
                self.published.set()
                return writes
            self._learned(self._server.learned(dropped=dropped))
        raise errors.ApiError(f"slices were changed or stored otherwise while they were written, {ROUNDS_MAX} times in a row")

    def _learn(self, offered: inventory.Inventory) -> None:
        """Find out what the server stores before anything that depends on it goes out, and once more when its version changes.

        Where it was known before, it counts as known until the new answer is there.
        """
        described = self._store.server()
        if described.version != self._version:
            self._version, self._due = described.version, frozenset(feature_probe.Question)
        self._server = self._server.learned(dropped=described.lacks)
        wanted = feature_probe.questions(offered, mixins=self._form is FormChoice.AUTO, lacks=described.lacks) & self._due
        is_clean = False
        for question in sorted(wanted, key=lambda item: item.value):
            gates = feature_probe.GATES[question] - described.lacks
            try:
                if not is_clean:
                    self._delete_probes()  # So that one that cannot be deleted is not joined by another at every attempt.
                    is_clean = True
                dropped, layout = feature_probe.ask(question, self._target, self._store, described.lacks)
            except errors.ApiError as error:
                if not gates <= self._server.stores.keys():
                    raise
                _log.warning("probe slice failed: last results kept", question=question.value, error=str(error))
                continue
            if question is feature_probe.Question.COUNTERS:
                layout = layout or resource_slice.Layout.APART
            self._learned(self._server.learned(stored=gates - dropped, dropped=dropped, layout=layout))
            self._due -= {question}

    def _learned(self, server: Server) -> None:
        """Go on with what an answer showed; log the fields that were not known to be dropped before."""
        news = {gate for gate in GATES if server.drops(gate) and not self._server.drops(gate)}
        if news:
            # Mixins are in no released API, and without them nothing is withdrawn.
            log = _log.warning if news - {"DRAMixins"} else _log.info
            log("the API server drops fields", features=sorted(news))
        self._server = server

    def _round(self, offered: inventory.Inventory) -> tuple[int, frozenset[str]]:
        """One list, one plan for each pool, its writes; the number of writes and the features the server dropped."""
        listed = self._store.list()
        is_succeeded = offered is self._completed and self._is_succeeded()
        if is_succeeded and any(not _is_probe(item) for item in listed):
            return 0, frozenset()
        pools = self._pages_of(offered)
        ours = {pool: [item for item in listed if item.spec.pool.name == pool] for pool in pools}
        writes = 0 if is_succeeded else self._delete_all([item for item in listed if item.spec.pool.name not in pools])
        # Times of taints are known from what was stored before too: a slice that somebody deleted comes back with them.
        known = [*self._stored, *(item.spec.page for item in listed)]
        stored: list[resource_slice.Published] = []
        dropped: frozenset[str] = frozenset()
        failure: errors.ApiError | None = None
        for pool in sorted(pools, key=lambda name: not _loses(ours[name], pools[name])):
            try:
                done, left, lost = self._write(pool, pools[pool], ours[pool], known)
            except errors.ApiError as error:
                failure = failure or error
                continue
            writes, stored, dropped = writes + done, [*stored, *left], dropped | lost
        if failure is not None:
            raise failure
        if offered.devices:
            self._stored = tuple(item.spec.page for item in stored)
        return writes, dropped

    def _write(
        self,
        pool: str,
        pages: Sequence[resource_slice.Page],
        ours: Sequence[resource_slice.Published],
        known: Sequence[resource_slice.Page],
    ) -> tuple[int, Sequence[resource_slice.Published], frozenset[str]]:
        """Write what changed in one pool; return the number of writes, its slices after them and the features the server dropped."""
        target = self._target
        wanted = [reconciles.adopt(self._altered.get((pool, index), page), known) for index, page in enumerate(pages)]
        changes = reconciles.plan(wanted, ours, driver=target.driver, node=target.node, pool=pool, reach=target.reach)
        writes = self._delete_all(changes.deletes)
        answers = [(update.index, update.spec, self._updated(update)) for update in changes.updates]
        answers += [(create.index, create.spec, self._store.create(create)) for create in changes.creates]
        gone = {item.name for item in changes.deletes}
        stored = {item.name: item for item in (*ours, *(answer for *_, answer in answers)) if item.name not in gone}
        writes += len(answers)
        if writes:
            _log.info("slices published", driver=target.driver, pool=pool, pages=len(wanted), writes=writes)
        dropped = (self._compare((pool, index), sent, answer.spec) for index, sent, answer in answers)
        return writes, list(stored.values()), frozenset().union(*dropped)

    def _delete_all(self, slices: Sequence[resource_slice.Published]) -> int:
        for item in slices:
            self._store.delete(item)
        return len(slices)

    def _delete_probes(self) -> None:
        self._delete_all([item for item in self._store.list() if _is_probe(item)])

    def _updated(self, update: resource_slice.Update) -> resource_slice.Published:
        try:
            return self._store.update(update)
        except errors.ApiError as error:
            # The kubelet deletes a driver's slices when it starts, and whoever changes one is answered by the next round.
            if error.status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
                raise _OvertakenError(update.published.name, error) from error
            raise

    def _compare(self, place: tuple[str, int], sent: resource_slice.SliceSpec, stored: resource_slice.SliceSpec) -> frozenset[str]:
        """The features whose fields were dropped, and without which the offer is reduced.

        A page changed in a way that no feature explains, or that nothing can be reduced for, is taken as it is, and reported once.
        """
        dropped = frozenset(reconciles.dropped(sent.page, stored.page))
        if dropped and not dropped & GATES:
            pool, index = place
            _log.error(_ALTERED if feature_gates.UNKNOWN in dropped else _UNREDUCED, pool=pool, index=index, fields=sorted(dropped))
            self._altered[place] = stored.page
            return frozenset()
        return dropped

    def _pages_of(self, offered: inventory.Inventory) -> Pages:
        """The pages of each pool that say the truth on this server; made anew only when the offer or what is known of the server changed."""
        if self._paged is None or self._paged[0] is not offered or self._paged[1] != self._server:
            inventory.check_node_selection(offered, self._target.reach)
            writes_mixins = self._form is FormChoice.MIXINS or (self._form is FormChoice.AUTO and not self._server.drops("DRAMixins"))
            form = resource_slice.Form.MIXINS if writes_mixins else resource_slice.Form.FLAT
            parts = inventory.by_pool(offered, self._target.pool)
            self._paged = (offered, self._server, {name: pages(part, self._server, form) for name, part in parts.items()})
            self._altered = {}
        return self._paged[2]


def _is_probe(item: resource_slice.Published) -> bool:
    return item.spec.pool.name.endswith(resource_slice.PROBE_SUFFIX)


def _loses(stored: Sequence[resource_slice.Published], wanted: Sequence[resource_slice.Page]) -> bool:
    """Whether a pool has stored devices that are not wanted in it any more."""
    names = {device.name for page in wanted for device in page.devices}
    return any(device.name not in names for item in stored for device in item.spec.page.devices)


def pages(offered: inventory.Inventory, server: Server, form: resource_slice.Form) -> tuple[resource_slice.Page, ...]:
    """The pages of what may be offered on this server; a flat inventory gets its mixins by factoring."""
    reduced = reduced_for(server, offered)
    if form is resource_slice.Form.MIXINS and reduced.is_flat:
        reduced = mixin_factoring.factor(reduced)
    return paging.paginate(reduced, form=form, layout=server.layout)


def reduced_for(server: Server, offered: inventory.Inventory) -> inventory.Inventory:
    """The part of an inventory that a server with these gaps stores truly."""
    if server.drops("DRADeviceTaints"):
        offered = feature_gates.without_taints(offered)
    if server.drops("DRAListTypeAttributes"):
        offered = feature_gates.without_lists(offered)
    if server.drops("DRAPartitionableDevices"):
        offered = feature_gates.without_counters(offered)
    return feature_gates.without_sharing(offered) if server.drops("DRAConsumableCapacity") else offered
