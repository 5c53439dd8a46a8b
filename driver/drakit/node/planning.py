"""Choosing identities for a claim's grants, each in sight of what is promised already: the author's ``plan``, and its ``promised``.

Planning goes on under the locks of the devices and ends in ``journal.begin``, so what the journal knows of a device, and what this thread has planned
of the same claim, is all there is; but while memory is lost (``forgotten``), what claims hold that the journal does not know yet is there too.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import ports, records
from drakit.node import offer

Grant = drivers.Grant[object]
Promised = Callable[[devices.Device], Sequence[records.Record]]


class Planner:
    """Plans for one author; ``pool`` is the node's own. ``forgotten`` says what the journal should know and does not. Safe between threads."""

    def __init__(self, author: offer.Author, journal: ports.Journal, pool: str, forgotten: Promised = lambda _: ()) -> None:
        self._author = author
        self._journal = journal
        self._pool = pool
        self._forgotten = forgotten
        self._local = _Local()

    def plan(self, grants: Sequence[Grant]) -> Sequence[Grant]:
        """The grants with their intents; raises what the author raises."""
        planned: list[Grant] = []
        self._local.planned = planned
        try:
            for grant in grants:
                planned += [dataclasses.replace(grant, intent=_intent(self._author.plan(grant)))]
        finally:
            self._local.planned = None
        return tuple(planned)

    def promised(self, device: devices.Device) -> Sequence[records.Record]:
        """The intents of a device's grants: those that are begun and not undone, and those planned for this claim a moment ago."""
        begun = self._journal.intents_of(self._pool, device.name)
        planned = self._local.planned
        if planned is None:
            return begun
        # Whoever is asked what was forgotten may ask what is promised; then nobody is planning, and it is told what is known.
        self._local.planned = None
        try:
            forgotten = self._forgotten(device)
        finally:
            self._local.planned = planned
        return [*begun, *forgotten, *(grant.intent for grant in planned if grant.device.name == device.name)]


def _intent(planned: object) -> records.Record:
    if not isinstance(planned, Mapping):
        raise TypeError(f"plan() returned {type(planned).__name__}; return a mapping, which is grant.intent afterwards")
    return planned


class _Local(threading.local):
    """What this thread has planned of the claim at hand; None where it plans none."""

    planned: list[Grant] | None = None
