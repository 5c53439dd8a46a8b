"""What claims hold by the journal's books and, while memory is lost, by what lies beside them; the check that a claim's grants are free by both."""

from collections.abc import Sequence

from drakit.core import driver as drivers
from drakit.core import inventory, ports
from drakit.node import offer, recall, room

Grants = Sequence["drivers.Grant[object]"]


class Books:
    """Of one driver on one node; ``pool`` is the node's own."""

    def __init__(self, journal: ports.Journal, offered: offer.Offer, pool: str, forgotten: recall.Forgotten) -> None:
        self._journal = journal
        self._offered = offered
        self._pool = pool
        self._forgotten = forgotten

    def check(self, grants: Grants, *, memory_lost: bool = False) -> None:
        """Raise DeviceBusyError unless all is free by the journal, and where ``memory_lost`` by the CDI files of claims that it does not know.

        Of a pool that is not this node's own, only the devices are known.
        """
        shares = [grant.share_id for grant in grants if grant.share_id]
        for pool in sorted({grant.pool for grant in grants}):
            is_own = pool == self._pool
            offered, drawn = (self._offered.flat, self._offered.drawing) if is_own else (inventory.Inventory(), {})
            wanted = [grant for grant in grants if grant.pool == pool]
            near = room.neighbours(wanted, drawn)
            beside = self._forgotten.held(near, shares) if memory_lost and is_own else ()
            room.check(wanted, [*beside, *self._journal.holdings(pool, near, shares)], offered)
