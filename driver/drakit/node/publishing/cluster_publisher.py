"""Keep the ResourceSlices of all pools of one driver that belong to no node equal to what is offered, while this process leads.

Invariants:
1. Nothing is written without leading: it is asked before every write, so a lease that is lost in the middle of a round ends the round there. A
   request that is on its way at that moment can change nothing that the next leader wrote, because it names the version it read; a slice that it
   creates is seen and removed by the next leader.
2. Every slice of the driver without a node belongs to this publisher: a pool that is no longer offered is withdrawn.
3. Each pool is published as a node's is (see ``publisher``); one pool that cannot be published does not keep back the others.

``Election`` holds the Lease, so that of several publishers of one driver only one writes. ``leads`` is true from the first successful write of the
lease until ``renew_deadline`` after the last one was asked for. It needs no thread to turn false: a process that was stopped for a minute finds out
at its next look, before it writes.
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

_AGAIN_SECONDS = 2.0


class ClusterPublisher(publisher.SlicePublisher):
    """Publishes what ``offer`` was last given, while ``leads`` says so; ``run`` works until stopped, ``reconcile`` does one round."""

    def __init__(
        self,
        driver: str,
        *,
        store: ports.SliceStore,
        leads: Callable[[], bool],
        clock: ports.Clock,
        form: publisher.FormChoice = publisher.FormChoice.AUTO,
    ) -> None:
        super().__init__(driver, _Guarded(store, leads), clock)
        self._leads = leads
        self._form = form
        self._offered: Sequence[inventory.ClusterPool] | None = None
        self._publishers: dict[str, tuple[inventory.ClusterPool, publisher.Publisher]] = {}

    def offer(self, offered: Sequence[inventory.ClusterPool]) -> None:
        """Publish these pools, and no other, from now on; raises InventoryError where two have one name."""
        names = [pool.name for pool in offered]
        for name in names:
            if names.count(name) > 1:
                raise errors.InventoryError(f"the name is used {names.count(name)} times", field=f"pools[{name}]")
        self._offered = tuple(offered)
        self._changed()

    def reconcile(self) -> int:
        """Make the stored slices equal to the offer, if this process leads; the number of writes. Raises the first DrakitError of any pool."""
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
            _log.warning("cannot publish a pool", driver=self._driver, error=str(failure))
        if failures:
            raise failures[0]
        self.published.set()
        return writes

    def _withdraw(self, wanted: set[str]) -> int:
        """Delete the slices of all other pools."""
        foreign = [item for item in self._store.list() if _base(item.spec.pool.name) not in wanted]
        for item in foreign:
            self._store.delete(item)
        self._publishers = {name: made for name, made in self._publishers.items() if name in wanted}
        return len(foreign)

    def _publisher_of(self, pool: inventory.ClusterPool) -> publisher.Publisher:
        """The publisher of a pool, new where the pool is reached by other nodes than before, and told of what changed."""
        known, made = self._publishers.get(pool.name, (None, None))
        if made is None or known is None or known.reach != pool.reach:
            target = publisher.Target(driver=self._driver, node="", pool=pool.name, reach=pool.reach)
            made = publisher.Publisher(target, store=_OfPool(self._store, pool.name), clock=self._clock, form=self._form)
            known = None
        if known is None or known.inventory is not pool.inventory:
            made.offer(pool.inventory)
            self._publishers[pool.name] = (pool, made)
        return made


def _base(pool: str) -> str:
    """The pool that a probe's pool stands for; any other pool itself."""
    return pool.removesuffix("/probe")


class _Guarded:
    """A slice store that refuses every write while this process does not lead."""

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
            raise errors.RetryError("the lease is lost; nothing is written until it is held again", after=_AGAIN_SECONDS)


class _OfPool:
    """The slices of one pool and of its probe, out of a store of many."""

    def __init__(self, store: ports.SliceStore, pool: str) -> None:
        self._store = store
        self._pool = pool
        self.server = store.server
        self.create = store.create
        self.update = store.update
        self.delete = store.delete

    def list(self) -> Sequence[resource_slice.Published]:
        return [item for item in self._store.list() if _base(item.spec.pool.name) == self._pool]

    def watch(self, stop: threading.Event) -> Iterator[None]:
        return self._store.watch(stop)


class Election:
    """One candidate, ``me``, for one lease; ``run`` works until stopped, ``step`` makes one try."""

    def __init__(self, store: ports.LeaseStore, *, me: str, terms: leader_election.Terms, clock: ports.Clock) -> None:
        self._store = store
        self._me = me
        self._terms = terms
        self._clock = clock
        self._seen = leader_election.ObservedLease(lease=None, since=clock.monotonic())
        self._until = float("-inf")
        self._told = ""

    @property
    def holder(self) -> str:
        """Who holds the lease as last seen; empty where nobody does."""
        return self._seen.lease.holder if self._seen.lease else ""

    def leads(self) -> bool:
        """Whether this process may write now; ask before every write."""
        return self._clock.monotonic() < self._until

    def run(self, stop: threading.Event, changed: Callable[[], None]) -> None:
        """Try, renew and try again until ``stop`` is set, and call ``changed`` when this candidate begins or ceases to lead."""
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
        """One look at the lease, and the write that follows from it; raises ApiError where either fails."""
        asked = self._clock.monotonic()
        found = self._store.read()
        self._seen = self._seen.again(found, self._clock.monotonic())
        step = leader_election.decide(self._seen, self._me, asked)
        if step is leader_election.Step.WAIT:
            self._until = float("-inf")
            self._tell_holder()
            return
        wanted = leader_election.following(step, self._seen, self._me, self._terms, self._clock.now())
        self._seen = leader_election.ObservedLease(lease=self._store.write(wanted), since=asked)
        self._until = asked + self._terms.renew_deadline

    def release(self) -> None:
        """Stop leading, and say so to the others; where that fails they wait the lease out."""
        led, self._until = self.leads(), float("-inf")
        lease = self._seen.lease
        if not led or lease is None:
            return
        try:
            self._store.write(leader_election.released(lease, self._clock.now()))
        except errors.DrakitError as error:
            _log.warning("releasing lease failed", duration_ms=round(self._terms.duration * 1000), error=str(error))

    def _tell_holder(self) -> None:
        if self.holder != self._told:
            _log.info("lease held by another publisher", holder=self.holder)
            self._told = self.holder
