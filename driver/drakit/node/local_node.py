"""The local half of a node: a driver with its engine, journal, locks and CDI directory, and nothing of Kubernetes.

``drakit prepare`` needs no more than this; ``node.node`` adds the kubelet and the API server.
"""

import contextlib
import dataclasses
import pathlib
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from drakit.cdi import directory
from drakit.core import driver as drivers
from drakit.core import names, ports, records
from drakit.journal import journal, locks
from drakit.node import driver_context, engine, inventory_cache, metadata, recovery, timing
from drakit.node.restore import rebuild
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Intents = ports.Intents


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folders:
    """Where a driver keeps things: its own ``home`` folder (journal, locks, service socket), and the CDI directory."""

    home: pathlib.Path
    cdi: pathlib.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverSpec:
    """Which driver works where: ``build`` makes it, given a way to read the intents of all claims the journal knows."""

    driver_name: str
    build: Callable[[Intents], inventory_cache.Author]
    identity: engine.NodeIdentity


class LocalNode:
    """An open station; made by ``open``, closed by ``close`` or by leaving a ``with`` block."""

    def __init__(self, spec: DriverSpec, folders: Folders, claim_source: ports.ClaimSource, meter: ports.Meter | None = None) -> None:
        names.check_driver(spec.driver_name)
        self._closing = contextlib.ExitStack()
        self.cdi = directory.Directory(folders.cdi, driver=spec.driver_name)
        self.journal = journal.Journal.open(
            folders.home, driver=spec.driver_name, boot_id=spec.identity.boot_id, traces=lambda: bool(self.cdi.claims())
        )
        self._closing.callback(self.journal.close)
        self.identity = spec.identity
        self.report = recovery.Report()
        try:
            self._equip(spec, folders, claim_source, meter)
        except BaseException:
            self.close()
            raise

    def _equip(self, spec: DriverSpec, folders: Folders, claim_source: ports.ClaimSource, meter: ports.Meter | None) -> None:
        """Make the author's driver, and what serves it, around the open journal."""
        self.made = made = spec.build(self._intents)
        if made.volatile:
            self.journal.relax()
        self.author, source, self.metadata = metadata.with_metadata(made, claim_source, folders.home)
        self.offered = inventory_cache.InventoryCache(self.author)
        device_locks, claim_locks = (_timed(locks_of_kind, meter) for locks_of_kind in _locks(folders.home))
        self.engine = engine.Engine(
            timing.timed(self.author, timing.DEVICE, meter),
            identity=spec.identity,
            offered=self.offered,
            claim_source=timing.timed(source, timing.FETCH, meter),
            journal=timing.timed(self.journal, timing.JOURNAL, meter),
            cdi=timing.timed(self.cdi, timing.CDI, meter),
            device_locks=device_locks,
            locks_of_claims=claim_locks,
        )
        self.engine.memory_lost = self.journal.quarantine is not None
        drivers.open_driver(made, self.engine.planner.planned)
        self.context = driver_context.NodeDriverContext(
            self.author,
            data_dir=folders.home,
            boot_id=spec.identity.boot_id,
            journal=self.journal,
            notebook=self.journal,
            device_locks=device_locks,
            clock=timing.SystemClock(),
        )

    @classmethod
    def open(cls, spec: DriverSpec, folders: Folders, claim_source: ports.ClaimSource, meter: ports.Meter | None = None) -> Self:
        """Open the journal and the CDI directory and recover from whatever happened before; raises JournalError, CdiError, SettingsError."""
        local = cls(spec, folders, claim_source, meter)
        try:
            local.recover()
        except BaseException:
            local.close()
            raise
        return local

    def recover(self) -> None:
        """Undo half states, rewrite lost CDI files, remove orphans; see ``recovery``."""
        lost = self.journal.quarantine
        if lost is not None:
            _log.error("journal lost: keeping CDI files", quarantine=str(lost))
        self.report = recovery.recover(self.engine, self.journal, self.cdi, sweep_orphans=lost is None)

    def missing(self) -> Sequence[names.ClaimUid]:
        """What a rebuild would look for: claims that have CDI files, or that a lost journal named, and that are not known, or known by half."""
        lost = self.journal.quarantine
        return sorted(self.cdi.claims().union(() if lost is None else lost.lost) - rebuild.known(self.journal))

    def memory_rebuilt(self) -> None:
        """What a quarantine lost is known again: it is not reported any more, and what nobody knows is nobody's again."""
        self.journal.rebuilt()
        self.engine.memory_lost = False
        self.cdi.forget_readings()
        _log.info("all that the lost journal knew is known again")

    def close(self) -> None:
        """Close the journal; twice is fine."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()

    def _intents(self, claim: names.ClaimUid | None = None, /) -> Iterable[records.Record]:
        return self.journal.intents(claim)


def _locks(home: pathlib.Path) -> tuple[ports.Locks, ports.Locks]:
    """Those of devices, and those of claims, which leave no file behind."""
    return locks.FileLocks(home), locks.FileLocks(home, "claims", disposable=True)


def _timed(held: ports.Locks, meter: ports.Meter | None) -> ports.Locks:
    return held if meter is None else timing.TimedLocks(held, meter)
