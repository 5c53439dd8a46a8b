"""Keep the ResourceSlices of all pools of one driver that belong to no node equal to what is offered, while this process leads.

Invariants:
1. Nothing is written without leading: it is asked before every write, so a lease that is lost in the middle of a round ends the round there. A
   request that is on its way at that moment can change nothing that the next leader wrote, because it names the version it read; a slice that it
   creates is seen and removed by the next leader.
2. Every slice of the driver without a node belongs to this publisher: a pool that is no longer offered is withdrawn.
3. Each pool is published as a node's is (see ``publisher``); one pool that cannot be published does not keep back the others.
"""

import threading
from collections.abc import Callable, Iterator, Sequence

from drakit.core import errors, inventory, ports
from drakit.core.slices import resource_slice
from drakit.node.publishing import publisher, reconcile_loop
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

_AGAIN_SECONDS = 2.0


class ClusterPublisher(reconcile_loop.SlicePublisher):
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
        self._driver = driver
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
