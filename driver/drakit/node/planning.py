"""Choosing identities for a claim's grants, each in sight of what is promised already: the author's ``plan``, and its ``promised``.

Planning goes on under the locks of the devices and ends in ``journal.begin``, so what the journal knows of a device, and what this thread has planned
of the same claim, is all there is.
"""

import dataclasses
import threading
from collections.abc import Sequence

from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import ports, records
from drakit.node import offer

Grant = drivers.Grant[object]


class Planner:
    """Plans for one author; ``pool`` is the node's own. Safe between threads."""

    def __init__(self, author: offer.Author, journal: ports.Journal, pool: str) -> None:
        self._author = author
        self._journal = journal
        self._pool = pool
        self._local = threading.local()

    def plan(self, grants: Sequence[Grant]) -> Sequence[Grant]:
        """The grants with their intents; raises what the author raises."""
        planned: list[Grant] = []
        self._local.planned = planned
        try:
            for grant in grants:
                planned += [dataclasses.replace(grant, intent=self._author.plan(grant))]
        finally:
            self._local.planned = []
        return tuple(planned)

    def promised(self, device: devices.Device) -> Sequence[records.Record]:
        """The intents of a device's grants: those that are begun and not undone, and those planned for this claim a moment ago."""
        begun = [kept for entry in self._journal.entries() for kept in entry.grants if kept.pool == self._pool]
        planned: Sequence[Grant] = getattr(self._local, "planned", ())
        known = [(kept.device, kept.intent) for kept in begun] + [(grant.device, grant.intent) for grant in planned]
        return [intent for held, intent in known if held.name == device.name]
