"""Reading a journal without changing it: a copy to look at, and its content as plain JSON values.

Where a driver has the journal open, SQLite copies it as of one moment. Where nobody has, the files are copied while openers wait, so a file
that SQLite cannot read is copied too, and is examined and reported instead of being replaced. Where a driver died while it replaced an
unreadable file, the copy is what the next opening will find.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence

from drakit.core import device, lifecycle, records
from drakit.journal import codec, files, opening, sqlite

DATABASE = files.DATABASE


def exists(directory: pathlib.Path) -> bool:
    """Whether there is a journal in the directory; raises JournalError where that cannot be seen."""
    with files.refused(directory):
        return any((directory / name).exists() for name in _names())


def copy(directory: pathlib.Path, into: pathlib.Path) -> None:
    """Copy the journal of a directory into an empty folder; raises JournalError."""
    files.own_directory(into)
    with files.gate(directory):
        for name in _names():
            files.check_regular(directory / name)
        if _is_open(directory):
            _back_up(directory / files.DATABASE, into / files.DATABASE)
            return
        for name in _names():
            with files.refused(directory / name), contextlib.suppress(FileNotFoundError):
                shutil.copyfile(directory / name, into / name)
                (into / name).chmod(files.FILE_MODE)
    with sqlite.refused(into):
        opening.settle(into / files.DATABASE)


def _names() -> Iterator[str]:
    return (f"{files.DATABASE}{suffix}" for suffix in ("", *files.SIDE_FILES, *opening.SUFFIXES))


def _is_open(directory: pathlib.Path) -> bool:
    """Whether some process has the journal open: it holds the lock on being in use."""
    path = directory / files.USE_LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise files.refusal(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _back_up(path: pathlib.Path, target: pathlib.Path) -> None:
    files.create(target)
    with (
        sqlite.refused(path),
        contextlib.closing(sqlite.connect_reader(path)) as source,
        contextlib.closing(sqlite.connect(target)) as copied,
    ):
        source.backup(copied)


def integrity(directory: pathlib.Path) -> str:
    """Say what a thorough check of a copy finds broken, page by page; empty for nothing. Raises JournalError where it cannot be checked."""
    path = directory / DATABASE
    with sqlite.refused(path), contextlib.closing(sqlite.connect_reader(path)) as database:
        found = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
    return "" if found == ["ok"] else "; ".join(found)


def damage(directory: pathlib.Path) -> str:
    """Say why the journal of a directory cannot be used as it is; empty where it can. Raises JournalError."""
    path = directory / DATABASE
    with sqlite.refused(path):
        found = opening.examine(path, sqlite.LADDER)
    return found.reason if found is not None else ""


Notes = Mapping[str, records.Record]


def entry_document(found: lifecycle.Entry, notes: Sequence[Notes]) -> dict[str, object]:
    """One claim, its grants in order, each with its notes."""
    return {
        "uid": found.claim.uid,
        "namespace": found.claim.namespace,
        "name": found.claim.name,
        "state": found.state.value,
        "bootID": found.boot_id,
        "grants": [_grant(kept, own) for kept, own in zip(found.grants, notes, strict=True)],
    }


def taints_document(found: Mapping[str, Sequence[device.Taint]]) -> list[dict[str, object]]:
    """The taints_document by device."""
    return [
        {"device": name, "key": one.key, "value": one.value, "effect": one.effect.value, "timeAdded": _time(one)}
        for name, kept in found.items()
        for one in kept
    ]


def _grant(kept: lifecycle.GrantEntry, notes: Notes) -> dict[str, object]:
    return {
        "request": kept.request,
        "pool": kept.pool,
        "device": kept.device.name,
        "shareID": kept.share_id,
        "adminAccess": kept.admin_access,
        "consumedCapacity": codec.AMOUNTS.encode(kept.consumed_capacity),
        "parameters": None if kept.parameters is None else records.thaw(kept.parameters),
        "configSource": None if kept.config_source is None else kept.config_source.value,
        "intent": records.thaw(kept.intent),
        "record": records.thaw(kept.record),
        "edits": None if kept.edits is None else codec.FORMAT.encode(kept.edits),
        "notes": {key: records.thaw(note) for key, note in notes.items()},
        "snapshot": codec.FORMAT.encode(kept.device),
    }


def _time(one: device.Taint) -> str | None:
    return None if one.time_added is None else one.time_added.isoformat()
