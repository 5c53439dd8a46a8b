"""Keep the ResourceSlices of one pool equal to what the driver offers.

Invariants:
1. One change is one PUT; an idle re-sync writes nothing.
2. Nothing is offered that the API server would store untruly: what it drops is found on an empty probe slice before partitions go out, and on
   every answer after that; then the inventory is reduced to what is true without the field.
3. Whatever happens to the slices (the kubelet's wipe, a hand edit, a lost write), the next reconciliation mends it.
4. The API server being away is normal: the last offer is kept and tried again with growing pauses.
"""

import dataclasses
import enum
import threading

from drakit.core import counters, degrade, errors, factoring, inventory, mixins, paging, ports, quantity, reconcile, slices
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
SETTLE = 0.05
ROUNDS_MAX = 5


class FormChoice(enum.Enum):
    """How slices are written: mixins where the server stores them (auto), or always one form."""

    AUTO = "auto"
    FLAT = "flat"
    MIXINS = "mixins"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """What the API server was seen to store."""

    counters: bool = True
    mixins: bool = True
    sharing: bool = True
    taints: bool = True
    layout: slices.Layout = slices.Layout.APART


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Whose slices are published."""

    driver: str
    node: str
    pool: str


class Publisher:
    """Publishes what ``offer`` was last given; ``run`` works until stopped, ``reconcile`` does one round."""

    def __init__(self, target: Target, *, store: ports.SliceStore, clock: ports.Clock, form: FormChoice = FormChoice.AUTO) -> None:
        self._target = target
        self._store = store
        self._clock = clock
        self._form = form
        self._offered: inventory.Inventory | None = None
        self._server: Server | None = None
        self._paged: tuple[inventory.Inventory, Server, tuple[slices.Page, ...]] | None = None
        self._wake = threading.Event()
        self.published = threading.Event()

    def offer(self, offered: inventory.Inventory) -> None:
        """Publish this inventory from now on; returns before anything is written."""
        self._offered = offered
        self._wake.set()

    def wake(self) -> None:
        """Look at the slices soon."""
        self._wake.set()

    def follow(self, stop: threading.Event) -> None:
        """Wake the publisher at every change of the slices, whoever made it, until ``stop`` is set."""
        for _ in self._store.watch(stop):
            self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Reconcile at every wake, until ``stop`` is set and ``wake`` called."""
        pause = FIRST_PAUSE
        while not stop.is_set():
            self._clock.wait(self._wake, LONGEST_PAUSE)
            self._wake.clear()
            if stop.is_set() or self._offered is None:
                continue
            try:
                self.reconcile()
                pause = FIRST_PAUSE
                self._clock.wait(stop, SETTLE)
            except errors.DrakitError as error:
                _log.warning("cannot publish", driver=self._target.driver, error=str(error), retry_seconds=pause)
                self._clock.wait(stop, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                self._wake.set()

    def reconcile(self) -> int:
        """Make the stored slices equal to the offer; the number of writes. Raises ApiError or InventoryError."""
        if self._offered is None:
            return 0
        if self._server is None:
            self._server = self._probe(self._offered)
        writes = 0
        for _ in range(ROUNDS_MAX):
            done, dropped = self._round(self._offered, self._server)
            writes += done
            if not dropped:
                self.published.set()
                return writes
            self._server = _without(self._server, dropped)
        raise errors.ApiError(f"the API server stored something else than was sent, {ROUNDS_MAX} times in a row")

    def _round(self, offered: inventory.Inventory, server: Server) -> tuple[int, frozenset[str]]:
        """One list, one plan, its writes; the number of writes and the features the server dropped."""
        stored = self._store.list()
        ours = [item for item in stored if item.spec.pool.name == self._target.pool]
        for item in stored:
            if item not in ours:
                self._store.delete(item)
        wanted = self._pages_of(offered, server)
        changes = reconcile.plan(wanted, ours, driver=self._target.driver, node=self._target.node, pool=self._target.pool)
        for item in changes.deletes:
            self._store.delete(item)
        dropped: set[str] = set()
        for update in changes.updates:
            dropped.update(reconcile.dropped(update.spec.page, self._store.update(update).spec.page))
        for create in changes.creates:
            dropped.update(reconcile.dropped(create.spec.page, self._store.create(create).spec.page))
        writes = len(changes.deletes) + len(changes.updates) + len(changes.creates)
        if writes:
            _log.info("slices published", driver=self._target.driver, pool=self._target.pool, pages=len(wanted), writes=writes)
        return writes, frozenset(dropped)

    def _pages_of(self, offered: inventory.Inventory, server: Server) -> tuple[slices.Page, ...]:
        """The pages that say the truth on this server; made anew only when the offer or what is known of the server changed."""
        if self._paged is None or self._paged[0] is not offered or self._paged[1] != server:
            form = slices.Form.MIXINS if self._writes_mixins(server) else slices.Form.FLAT
            self._paged = (offered, server, pages(offered, server, form))
        return self._paged[2]

    def _writes_mixins(self, server: Server) -> bool:
        return self._form is FormChoice.MIXINS or (self._form is FormChoice.AUTO and server.mixins)

    def _probe(self, offered: inventory.Inventory) -> Server:
        """What the server stores, seen on a slice with counters and mixins but no device, in a pool of its own; nothing can be allocated from it."""
        if self._form is FormChoice.FLAT and not offered.counter_sets:
            return Server()
        wanted = _probe_slice(self._target)
        try:
            stored = self._store.create(wanted)
        except errors.ApiError as error:
            if error.status != 422:
                raise
            _log.warning("counter sets are not taken without devices", error=str(error))
            return Server(mixins=False, layout=slices.Layout.TOGETHER)
        self._store.delete(stored)
        dropped = reconcile.dropped(wanted.spec.page, stored.spec.page)
        return _without(Server(), frozenset(dropped)) if dropped else Server()


def pages(offered: inventory.Inventory, server: Server, form: slices.Form) -> tuple[slices.Page, ...]:
    """The pages of what may be offered on this server; a flat inventory gets its mixins by factoring."""
    reduced = reduced_for(server, offered)
    if form is slices.Form.MIXINS and reduced.is_flat:
        reduced = factoring.factor(reduced)
    return paging.paginate(reduced, form=form, layout=server.layout)


def reduced_for(server: Server, offered: inventory.Inventory) -> inventory.Inventory:
    """The part of an inventory that a server with these gaps stores truly."""
    if not server.taints:
        offered = degrade.without_taints(offered)
    if not server.counters:
        offered = degrade.without_counters(offered)
    return offered if server.sharing else degrade.without_sharing(offered)


def _without(server: Server, dropped: frozenset[str]) -> Server:
    """The server known to drop these features; a loss nobody can name counts as a loss of mixins first, then of everything."""
    _log.warning("the API server drops fields", features=sorted(dropped))
    unknown = not dropped & _FIELDS.keys()
    if unknown and not server.mixins:
        raise errors.ApiError(f"the API server drops fields that the devices need: {', '.join(sorted(dropped))}")
    lost = {"mixins": False} if unknown else {_FIELDS[name]: False for name in dropped & _FIELDS.keys()}
    return dataclasses.replace(server, **lost)  # type: ignore[arg-type]


_FIELDS = {
    "DRAPartitionableDevices": "counters",
    "DRAMixins": "mixins",
    "DRAConsumableCapacity": "sharing",
    "DRADeviceTaints": "taints",
}


def _probe_slice(target: Target) -> slices.Create:
    page = slices.Page(
        counter_sets=(counters.CounterSet(name="probe", counters={"own": quantity.ONE}, includes=("probe",)),),
        mixins=mixins.Mixins(counter_set=(mixins.CounterSetMixin(name="probe", counters={"included": quantity.ONE}),)),
    )
    pool = slices.Pool(name=f"{target.pool}/probe", generation=1, count=1)
    spec = slices.SliceSpec(driver=target.driver, node=target.node, pool=pool, page=page)
    return slices.Create(index=0, prefix=f"probe-{target.driver}-", spec=spec)
