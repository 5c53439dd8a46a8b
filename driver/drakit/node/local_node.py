"""The local part of a node: a driver with its engine, journal, locks and CDI directory, without Kubernetes.

``drakit prepare`` needs only this; ``node.node`` adds the kubelet and the API server.
"""

import contextlib
import dataclasses
import pathlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from drakit.cdi import directory
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import errors, names, ports, record_versions, records
from drakit.journal import examination, journal, locks, marks
from drakit.kubelet import metadata
from drakit.node import driver_context, engine, held_devices, inventory_cache, recovery, restorer, timing
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

METADATA_FOLDER = "device-metadata"

Intents = ports.Intents


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folders:
    """The folders of a driver: its own ``home`` (journal, locks, service socket) and the CDI directory.

    ``is_copy``: the journal is a copy for reading, which nothing in the CDI directory describes.
    """

    home: pathlib.Path
    cdi: pathlib.Path
    is_copy: bool = False

    def mark(self, driver: str, boot_id: str) -> marks.Mark:
        """Return the mark of a driver's journal."""
        return marks.Mark(marks.path(self.cdi, driver), boot_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverSpec:
    """A driver and its node. ``build`` makes the author's driver from a function that reads the intents of all journaled claims."""

    driver_name: str
    build: Callable[[Intents], inventory_cache.Author]
    identity: engine.NodeIdentity


class LocalNode:
    """An open local node; ``open`` makes it, ``close`` or the end of a ``with`` block closes it."""

    def __init__(
        self,
        spec: DriverSpec,
        folders: Folders,
        claim_source: ports.ClaimSource,
        meter: ports.Meter | None = None,
        *,
        checks_new: bool = False,
    ) -> None:
        names.check_driver(spec.driver_name)
        self._closing = contextlib.ExitStack()
        self.cdi = directory.Directory(folders.cdi, driver=spec.driver_name)
        boot_id, evidence = spec.identity.boot_id, None
        if not folders.is_copy:
            mark = folders.mark(spec.driver_name, boot_id)
            evidence = examination.Evidence(claims=self.cdi.claims, mark=mark, checks_new=checks_new)
        self.journal = journal.Journal.open(folders.home, driver=spec.driver_name, boot_id=boot_id, evidence=evidence)
        self._closing.callback(self.journal.close)
        self.identity = spec.identity
        self.report = recovery.Report()
        try:
            self._build(spec, folders, claim_source, meter)
        except BaseException:
            self.close()
            raise

    def _build(self, spec: DriverSpec, folders: Folders, claim_source: ports.ClaimSource, meter: ports.Meter | None) -> None:
        """Make the author's driver, its engine, restorer and context, around the open journal."""
        self.author = author = spec.build(self._intents)
        record_versions.check(author)
        author.node_name = spec.identity.pool
        if author.volatile:
            self.journal.relax()
        self.metadata: metadata.MetadataFiles | None = None
        if author.device_metadata:
            self.metadata = metadata.MetadataFiles(folders.home / METADATA_FOLDER, author.name)
        self.offered = inventory_cache.InventoryCache(author, self._held)
        device_locks = locks.FileLocks(folders.home, meter=meter)
        self.engine = engine.Engine(
            author,
            identity=spec.identity,
            offered=self.offered,
            claim_source=claim_source,
            journal=self.journal,
            cdi=self.cdi,
            device_locks=device_locks,
            locks_of_claims=locks.FileLocks(folders.home, "claims", disposable=True, meter=meter),
            meter=meter,
            metadata=self.metadata,
        )
        self.verbs = self.engine.verbs
        self.restorer = restorer.Restorer(
            restorer.RestorerParts(
                author=author,
                pool=spec.identity.pool,
                boot_id=spec.identity.boot_id,
                offered=self.offered,
                journal=self.journal,
                cdi=self.cdi,
                engine=self.engine,
                device_locks=device_locks,
                own_lock=lambda: locks.FileLocks(folders.home, "restore"),
                metadata=self.metadata,
                is_unverified=self.is_unverified,
            )
        )
        drivers.open_driver(author, self.engine.resolver.planned)
        self.context = driver_context.NodeDriverContext(
            author,
            data_dir=folders.home,
            boot_id=spec.identity.boot_id,
            journal=self.journal,
            driver_state=self.journal,
            device_locks=device_locks,
            clock=timing.SystemClock(),
        )

    def _intents(self, claim: names.ClaimUid | None = None) -> Sequence[records.Record]:
        """Return the intents of all grants or of one claim's grants, in their present form. Raises JournalError."""
        if not hasattr(self, "author"):
            raise RuntimeError(
                "a driver's intents have the form of its class, so it reads them in discover, start or a verb, not in __init__"
            )
        try:
            return [record_versions.present(self.author, stored, "intent") for stored in self.journal.intents(claim)]
        except errors.JournalError as error:
            raise self.unreadable() or error from error

    def unreadable(self) -> errors.JournalError | None:
        """Return the error of the first intent or record that this release of the driver cannot read, with its claim; None if it can read all."""
        for entry in self.journal.entries(edits=False):
            for grant in entry.grants:
                try:
                    record_versions.present(self.author, grant.intent, "intent")
                    record_versions.present(self.author, grant.record, "record")
                except errors.JournalError as error:
                    return errors.JournalError(f"claim {entry.claim}: {error}")
        return None

    def _held(self) -> held_devices.Holdings:
        return held_devices.held(self.journal.held_devices(self.identity.boot_id), self.identity.pool)

    @classmethod
    def open(
        cls,
        spec: DriverSpec,
        folders: Folders,
        claim_source: ports.ClaimSource,
        meter: ports.Meter | None = None,
        *,
        checks_new: bool = False,
    ) -> Self:
        """Open the journal and the CDI directory and, unless the journal is lost, recover. Raises JournalError, CdiError, SettingsError.

        While ``is_lost``, a driver does not serve: first ``restorer`` restores the claims, then ``recover`` runs. A command may prepare and unprepare
        other claims than the missing ones. With ``checks_new`` a new journal counts as lost until the API server was asked for claims.
        """
        local = cls(spec, folders, claim_source, meter, checks_new=checks_new)
        try:
            if (quarantine := local.journal.quarantine) is not None and quarantine.is_doubt:
                _log.info("journal unverified: asking the API server for its claims first", reason=quarantine.reason)
            elif quarantine is not None:
                _log.error("journal lost: restoring its claims first", path=str(quarantine.path), error=quarantine.reason)
            else:
                local.recover()
        except BaseException:
            local.close()
            raise
        return local

    @property
    def is_lost(self) -> bool:
        """Return whether the journal is lost and its claims are not restored yet."""
        return self.journal.quarantine is not None

    @property
    def is_unverified(self) -> bool:
        """Return whether nothing shows that the journal lacks a claim, but the API server must be asked first, as for a new journal."""
        return self.journal.quarantine is not None and self.journal.quarantine.is_doubt

    def recover(self) -> None:
        """Undo half states, rewrite lost CDI files, remove orphans; see ``recovery``."""
        is_new_boot = self.journal.last_boot_id != self.identity.boot_id
        self.report = recovery.recover(self.engine, self.journal, self.cdi, is_new_boot=is_new_boot)
        if self.metadata is not None:
            self.metadata.make_folder()
            if is_new_boot:
                self.metadata.sweep({entry.claim.uid for entry in self.journal.entries(edits=False)})

    def restore(self, listing: ports.ClaimList) -> Mapping[names.ClaimUid, str]:
        """Restore the claims of a lost journal by hand, without devices that are gone. Return those that failed, with the reason.

        If none failed and no driver asks the API server, the journal is no longer lost. Raises ApiError when the list fails, JournalError.
        """
        with self.restorer.alone(recovery.Deadline().is_waiting):
            failed = self.restorer.restore(listing, without_devices=True, by_hand=True)
        if not self.is_lost:
            self.recover()
        return failed

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims by hand, also while the journal is lost. Return an error text for each, empty on success.

        When no claim is missing afterwards and no driver asks the API server, the journal is no longer lost.
        """
        if not self.is_lost:
            return self.engine.unprepare(refs, caller)
        with self.restorer.alone(caller.is_waiting):
            answers = {ref.uid: self._release(ref, caller) for ref in refs}
            self.journal.released([uid for uid, error in answers.items() if not error])
            if self.restorer.missing() or not self.journal.rebuilt_by_hand():
                return answers
        self.recover()
        return answers

    def _release(self, ref: claims.ClaimRef, caller: ports.Caller) -> str:
        try:
            self.restorer.release(ref.uid)
        except errors.DrakitError as error:
            return str(error)
        return self.engine.unprepare([ref], caller)[ref.uid]

    def close(self) -> None:
        """Close the journal. Safe to call twice."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self.close()
