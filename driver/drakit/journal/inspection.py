"""Read a journal without changing it: copy it, and return its content as plain JSON values.

If a driver has the journal open, SQLite copies a consistent snapshot. Otherwise the files are copied while openers wait. So a file that SQLite cannot
read is copied too, and is examined and reported instead of replaced. If a driver died while it replaced an unreadable file, the copy is finished as
the next opening would finish it.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated

from drakit.core import errors, lifecycle, names, records
from drakit.core.encoding import wire
from drakit.journal import codec, examination, files, opening, quarantine, sqlite, store

DATABASE = files.DATABASE


def exists(directory: pathlib.Path) -> bool:
    """Return whether the directory has a journal. Raises JournalError if the directory cannot be accessed."""
    with files.as_journal_errors(directory):
        return any((directory / name).exists() for name in _names())


def copy(directory: pathlib.Path, into: pathlib.Path) -> None:
    """Copy the journal of a directory into an empty folder. Raises JournalError."""
    files.ensure_private_directory(into)
    with files.gate(directory):
        for name in _names():
            files.check_regular(directory / name)
        # A database that was deleted while a driver has it open has no snapshot.
        if (directory / files.DATABASE).exists() and _is_open(directory):
            _backup(directory / files.DATABASE, into / files.DATABASE)
            return
        for name in _names():
            with files.as_journal_errors(directory / name), contextlib.suppress(FileNotFoundError):
                shutil.copyfile(directory / name, into / name)
                (into / name).chmod(files.FILE_MODE)
    with sqlite.as_journal_errors(into):
        opening.finish_replacement(into / files.DATABASE)


def _names() -> Iterator[str]:
    return (f"{files.DATABASE}{suffix}" for suffix in ("", *files.SIDE_FILES, *opening.SUFFIXES))


def _is_open(directory: pathlib.Path) -> bool:
    """Return whether a process has the journal open, which holds its use lock."""
    path = directory / files.USE_LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise files.journal_error(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _backup(path: pathlib.Path, target: pathlib.Path) -> None:
    files.create(target)
    with (
        sqlite.as_journal_errors(path),
        contextlib.closing(sqlite.connect_reader(path)) as source,
        contextlib.closing(sqlite.connect(target)) as destination,
    ):
        source.backup(destination)


def is_served(directory: pathlib.Path) -> bool:
    """Return whether a driver that asks the API server for its claims has opened the journal. Raises JournalError."""
    path = directory / DATABASE
    with sqlite.as_journal_errors(path), contextlib.closing(sqlite.connect_reader(path)) as database:
        return quarantine.served(database) is not False


def integrity(directory: pathlib.Path) -> str:
    """Return the errors of a full integrity check of a copy, an empty string for none. Raises JournalError if it cannot be checked."""
    path = directory / DATABASE
    with sqlite.as_journal_errors(path), contextlib.closing(sqlite.connect_reader(path)) as database:
        results = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
    return "" if results == ["ok"] else "; ".join(results)


def damage(directory: pathlib.Path, last_change: int | None = None) -> str:
    """Return why the journal of a directory is unreadable or behind, an empty string for a usable one. Raises JournalError.

    ``last_change`` is the number of its mark, which was read before the journal was copied.
    """
    path = directory / DATABASE
    with sqlite.as_journal_errors(path):
        damaged = examination.examine(path, last_change=last_change)
    return opening.printable(damaged.reason) if damaged is not None else ""


def missing(directory: pathlib.Path, last_change: int | None, with_files: Collection[names.ClaimUid]) -> str:
    """Return why the journal that a directory lacks was lost, an empty string if there never was one. ``with_files``: the claims with CDI files."""
    with files.as_journal_errors(directory):
        return examination.missing(directory / DATABASE, last_change, with_files)


def has_claims(directory: pathlib.Path) -> bool:
    """Return whether a copy has claims. Raises JournalError if it cannot be read."""
    path = directory / DATABASE
    with sqlite.as_journal_errors(path), contextlib.closing(sqlite.connect_reader(path)) as database:
        return bool(store.counts(database))


State = Mapping[str, records.Record]


def entry_document(entry: lifecycle.Entry, states: Sequence[State]) -> dict[str, object]:
    """Return one claim with its grants in order, each with the driver's state."""
    return {
        "uid": entry.claim.uid,
        "namespace": entry.claim.namespace,
        "name": entry.claim.name,
        "state": entry.state.value,
        "bootID": entry.boot_id,
        "grants": [_grant(grant, state) for grant, state in zip(entry.grants, states, strict=True)],
    }


def entry_of(document: object) -> lifecycle.Entry:
    """Return the claim of an ``entry_document``, without the driver's state. Raises ConfigError, which names the field."""
    claim = _FORMAT.decode(_Claim, document)
    rows = [
        codec.GrantRow(
            position=position,
            request=grant.request,
            pool=grant.pool,
            device=grant.device,
            share_id=grant.share_id,
            admin_access=int(grant.admin_access),
            snapshot=codec.dump(grant.snapshot),
            consumed=codec.dump(grant.consumed_capacity),
            parameters=None if grant.parameters is None else codec.dump(grant.parameters),
            config_source=grant.config_source,
            intent=codec.dump(grant.intent),
            record=codec.dump(grant.record),
            edits=None if grant.edits is None else codec.dump(grant.edits),
        )
        for position, grant in enumerate(claim.grants)
    ]
    row = codec.ClaimRow(uid=claim.uid, namespace=claim.namespace, name=claim.name, state=claim.state, boot_id=claim.boot_id)
    try:
        return codec.entry(row, rows)
    except codec.UnreadableError as error:
        raise errors.ConfigError(str(error)) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Grant:
    request: str
    pool: str
    device: str
    share_id: Annotated[str, wire.Field(name="shareID")] = ""
    admin_access: bool = False
    consumed_capacity: object
    parameters: object = None
    config_source: str | None = None
    intent: object
    record: object
    edits: object = None
    snapshot: object


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Claim:
    uid: str
    namespace: str
    name: str
    state: str
    boot_id: Annotated[str, wire.Field(name="bootID")]
    grants: tuple[_Grant, ...]


_FORMAT = wire.Format(ignore_unknown=True, empty_is_absent=True, converters={object: wire.ANYTHING})


def _grant(grant: lifecycle.GrantEntry, state: State) -> dict[str, object]:
    return {
        "request": grant.request,
        "pool": grant.pool,
        "device": grant.device.name,
        "shareID": grant.share_id,
        "adminAccess": grant.admin_access,
        "consumedCapacity": codec.AMOUNTS.encode(grant.consumed_capacity),
        "parameters": None if grant.parameters is None else records.thaw(grant.parameters),
        "configSource": None if grant.config_source is None else grant.config_source.value,
        "intent": records.thaw(grant.intent),
        "record": records.thaw(grant.record),
        "edits": None if grant.edits is None else codec.FORMAT.encode(grant.edits),
        "notes": {key: records.thaw(record) for key, record in state.items()},
        "snapshot": codec.FORMAT.encode(grant.device),
    }
