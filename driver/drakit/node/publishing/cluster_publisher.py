"""Keep the ResourceSlices of a driver's cluster pools equal to its offer, while this process is the leader.

Invariants:
1. Only the leader writes. The publisher checks its lease before every write, so a lost lease ends a round at once. A request in flight at that moment
   cannot overwrite the next leader's writes, because it names the version that it read. The next leader removes a slice that it creates.
2. Every slice of the driver without a node belongs to this publisher: a pool that is no longer offered is withdrawn.
3. Each pool is published as a node's pool is (see ``publisher``). A pool that cannot be published does not block the others.

``Election`` holds the Lease, so that of several publishers of one driver only one writes. ``leads`` is true from the first successful write of the
lease until ``renew_deadline`` after the last write was requested. It turns false without a thread, so a process that was suspended detects at its
next check, before it writes, that it no longer leads.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence

from drakit.core import errors, inventory, ports
from drakit.core.slices import leader_election, resource_slice
from drakit.node.publishing import publisher
from drakit.telemetry import logs

_log = logs.get_logger(__name__)
_jitter = random.SystemRandom()

_RETRY_SECONDS = 2.0


class ClusterPublisher(publisher.SlicePublisher):
    """The publisher of the pools last passed to ``offer``, while ``leads()`` is true; ``run`` works until stopped, ``reconcile`` runs once."""

    def __init__(
        self,
        driver: str,
        *,
        store: ports.SliceStore,
        leads: Callable[[], bool],
        clock: ports.Clock,
        form: publisher.FormChoice = publisher.FormChoice.AUTO,
    ) -> None:
        super().__init__(driver, _LeaderStore(store, leads), clock)
        self._leads = leads
        self._form = form
        self._offered: Sequence[inventory.ClusterPool] | None = None
        self._publishers: dict[str, tuple[inventory.ClusterPool, publisher.Publisher]] = {}

    def offer(self, offered: Sequence[inventory.ClusterPool]) -> None:
        """Publish exactly these pools from now on. Raises InventoryError for a duplicate name."""
        names = [pool.name for pool in offered]
        for name in names:
            if names.count(name) > 1:
                raise errors.InventoryError(f"the name is used {names.count(name)} times", field=f"pools[{name}]")
        self._offered = tuple(offered)
        self._changed()

    def reconcile(self) -> int:
        """Make the stored slices equal to the offer, if this process leads, and return the number of writes. Raises the first DrakitError."""
        offered = self._offered
        if offered is None or not self._leads():
            return 0
        writes = self._withdraw({pool.name for pool in offered})
        failures: list[errors.DrakitError] = []
        for pool in offered:
            try:
                writes += self._publisher_of(pool).reconcile()
            except errors.DrakitError as error:
                failures.append(error)
        for failure in failures[1:]:
            _log.warning("publishing pool failed", driver=self._driver, error=str(failure))
        if failures:
            raise failures[0]
        self.published.set()
        return writes

    def _withdraw(self, wanted: set[str]) -> int:
        """Delete the slices of all other pools."""
        unwanted = [published for published in self._store.list() if _base_pool(published.spec.pool.name) not in wanted]
        for published in unwanted:
            self._store.delete(published)
        self._publishers = {name: offered for name, offered in self._publishers.items() if name in wanted}
        return len(unwanted)

    def _publisher_of(self, pool: inventory.ClusterPool) -> publisher.Publisher:
        """Return the publisher of a pool with the pool's present inventory; a new publisher if the pool's nodes changed."""
        previous, pool_publisher = self._publishers.get(pool.name, (None, None))
        if pool_publisher is None or previous is None or previous.reach != pool.reach:
            target = publisher.Target(driver=self._driver, node="", pool=pool.name, reach=pool.reach)
            pool_publisher = publisher.Publisher(target, store=_PoolStore(self._store, pool.name), clock=self._clock, form=self._form)
            previous = None
        if previous is None or previous.inventory is not pool.inventory:
            pool_publisher.offer(pool.inventory)
            self._publishers[pool.name] = (pool, pool_publisher)
        return pool_publisher


def _base_pool(pool: str) -> str:
    """Return the pool of a probe's pool, and any other pool unchanged."""
    return pool.removesuffix(resource_slice.PROBE_SUFFIX)


class _LeaderStore:
    """A slice store that rejects every write while this process does not lead."""

    def __init__(self, store: ports.SliceStore, leads: Callable[[], bool]) -> None:
        self._store = store
        self._leads = leads
        self.watch = store.watch
        self.list = store.list
        self.server = store.server

    def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
        self._check()
        return self._store.create(wanted)

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        self._check()
        return self._store.update(wanted)

    def delete(self, published: resource_slice.Published) -> None:
        self._check()
        self._store.delete(published)

    def _check(self) -> None:
        if not self._leads():
            raise errors.RetryError("the lease is lost; slices are not written until it is acquired again", after=_RETRY_SECONDS)


class _PoolStore:
    """A slice store limited to one pool and its probe slices."""

    def __init__(self, store: ports.SliceStore, pool: str) -> None:
        self._store = store
        self._pool = pool
        self.server = store.server
        self.create = store.create
        self.update = store.update
        self.delete = store.delete

    def list(self) -> Sequence[resource_slice.Published]:
        return [published for published in self._store.list() if _base_pool(published.spec.pool.name) == self._pool]

    def watch(self, stop: threading.Event) -> Iterator[None]:
        return self._store.watch(stop)


class Election:
    """A leader election by a Lease; ``me`` is this candidate. ``run`` works until stopped, ``step`` makes one attempt."""

    def __init__(self, store: ports.LeaseStore, *, me: str, terms: leader_election.Terms, clock: ports.Clock) -> None:
        self._store = store
        self._me = me
        self._terms = terms
        self._clock = clock
        self._observed = leader_election.ObservedLease(lease=None, since=clock.monotonic())
        self._leads_until = float("-inf")
        self._logged_holder = ""

    @property
    def holder(self) -> str:
        """Return the last observed holder of the lease; empty where it has none."""
        return self._observed.lease.holder if self._observed.lease else ""

    def leads(self) -> bool:
        """Return whether this process may write now; check this before every write."""
        return self._clock.monotonic() < self._leads_until

    def run(self, stop: threading.Event, changed: Callable[[], None]) -> None:
        """Acquire and renew the lease until ``stop`` is set, and call ``changed`` when this candidate starts or stops leading."""
        led = False
        while not stop.is_set():
            try:
                self.step()
            except errors.DrakitError as error:
                _log.warning("lease renewal failed" if led else "lease request failed", holder=self._me, error=str(error))
            if led != self.leads():
                led = not led
                _log.info("leadership acquired" if led else "leadership lost", holder=self._me)
                changed()
            self._clock.wait(stop, self._terms.retry * _jitter.uniform(1.0, 1.2))

    def step(self) -> None:
        """Read the lease, and acquire or renew it if that is due. Raises ApiError."""
        requested = self._clock.monotonic()
        lease = self._store.read()
        self._observed = self._observed.again(lease, self._clock.monotonic())
        step = leader_election.decide(self._observed, self._me, requested)
        if step is leader_election.Step.WAIT:
            self._leads_until = float("-inf")
            self._log_holder()
            return
        wanted = leader_election.following(step, self._observed, self._me, self._terms, self._clock.now())
        self._observed = leader_election.ObservedLease(lease=self._store.write(wanted), since=requested)
        self._leads_until = requested + self._terms.renew_deadline

    def release(self) -> None:
        """Stop leading, and release the lease; if that fails, the others wait until it expires."""
        led, self._leads_until = self.leads(), float("-inf")
        lease = self._observed.lease
        if not led or lease is None:
            return
        try:
            self._store.write(leader_election.released(lease, self._clock.now()))
        except errors.DrakitError as error:
            _log.warning("releasing lease failed", duration_ms=round(self._terms.duration * 1000), error=str(error))

    def _log_holder(self) -> None:
        if self.holder != self._logged_holder:
            _log.info("lease held by another publisher", holder=self.holder)
            self._logged_holder = self.holder
