"""Mock machines: whole nodes as data, one YAML file each in this folder, and the directory in which a mock machine lives.

A machine has a name, a description, and one key for each device family (``gpus``, ``nics``, ``tpus``); a family reads its own key and says what it
understands. The directory outlives the driver that uses it: it holds the state of the mock hardware and the id of the machine's current boot.
"""

import contextlib
import dataclasses
import difflib
import fcntl
import importlib.resources
import os
import pathlib
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator

from drakit.core import errors
from drakit.devices import tables
from drakit.inputs import files

_SUFFIX = ".yaml"
SIZE_MAX = 4 << 20
"""Bytes of a machine's file."""
_FAMILIES = ("gpus", "nics", "tpus")
BOOT_ID = "boot_id"
_WHOSE = "machine"
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_SETTLED_NS = 100_000_000
"""Longer than a tick of the clock by which file systems date files, which is 10 ms at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """Which mock machine to be, where it keeps its state, and whose it is.

    ``owner`` (a node's name) makes the identities of two machines of one kind differ: GPU UUIDs are derived from it.
    """

    name: str
    directory: pathlib.Path
    owner: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as its file describes it; ``families`` holds what each family has to read, by key."""

    name: str
    description: str
    families: dict[str, object]

    def family(self, key: str) -> tables.Table:
        """Return a fresh reader over one family's part, as ``{key: ...}``; its ``rows(key)`` or ``table(key)`` is the content."""
        found = {key: self.families[key]} if key in self.families else {}
        return tables.Table(found, f"{self.name}: ")


def names(family: str = "") -> tuple[str, ...]:
    """Return the machines there are, sorted; only those that have something of a family, given by its key."""
    folder = importlib.resources.files(__name__)
    known = sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))
    return tuple(name for name in known if not family or family in load(name).families)


def load(name: str) -> Machine:
    """Return the machine of that name, or in the file of that path (one with a ``/``); raises SettingsError that lists the known names."""
    if "/" in name:
        return _load_file(pathlib.Path(name))
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1)
        meant = f"did you mean {close[0]}? Known" if close else "known"
        raise errors.SettingsError(f"no mock machine {name!r}; {meant} are {', '.join(names())}, or give a path", key="mock.machine")
    machine = parse((importlib.resources.files(__name__) / f"{name}{_SUFFIX}").read_text("utf-8"), name)
    if machine.name != name:
        raise errors.SettingsError(f"is {machine.name!r}, but the file is {name}{_SUFFIX}", key=f"{name}: name")
    return machine


def _load_file(path: pathlib.Path) -> Machine:
    try:
        text = files.read_text(path, limit=SIZE_MAX)
    except OSError as error:
        raise errors.SettingsError(f"cannot read {path}: {error.strerror}", key="mock.machine") from error
    return parse(text, str(path))


def parse(text: str, origin: str) -> Machine:
    """Return a machine from the text of its file; raises SettingsError for anything unknown at the top level."""
    top = tables.from_yaml(text, origin)
    if "apiVersion" in top or "kind" in top:
        raise errors.SettingsError("is a Kubernetes object, not the description of a mock machine", key=origin)
    name, description = top.text("name"), top.text("description")
    families = {key: top.anything(key) for key in _FAMILIES if key in top}
    top.close()
    return Machine(name=name, description=description, families=families)


def folder_name(name: str) -> str:
    """Return the name of a folder for a machine of this name, whatever characters its file gives it."""
    return urllib.parse.quote(name, safe="").replace(".", "%2E")


def take_over(directory: pathlib.Path, name: str) -> None:
    """Mark the directory as this machine's at its first use. Raises SettingsError where it is another machine's."""
    file = directory / _WHOSE
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _write(file, name, replace=False)
        found = file.read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise errors.SettingsError(f"{file} names no machine: {error}", key="mock.dir") from error
    except OSError as error:
        fix = "name a folder that can be written, with --folder or mock.dir"
        raise errors.SettingsError(f"cannot keep a mock machine in {directory}: {error.strerror}; {fix}", key="mock.dir") from error
    if found != name:
        fix = f"write --mock {found}, or give another --folder"
        raise errors.SettingsError(f"{directory} holds machine {found!r}, not {name!r}: {fix}", key="mock.dir")


def boot_id(directory: pathlib.Path) -> str:
    """Return the id of the machine's current boot, as /proc/sys/kernel/random/boot_id gives on a real one; the first call boots the machine."""
    file = directory / BOOT_ID
    try:
        with contextlib.suppress(FileNotFoundError):
            return file.read_text("ascii").strip()
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        return _publish(file, replace=False)
    except OSError as error:
        raise errors.SettingsError(f"cannot keep a mock machine in {directory}: {error.strerror}", key="mock.dir") from error


def reboot(directory: pathlib.Path) -> str:
    """Reboot the machine: state that hardware loses at a reboot is lost. Return the new boot id."""
    directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    return _publish(directory / BOOT_ID, replace=True)


class Mirror:
    """The content of a small file of a machine's directory, cached while the file is unchanged; checking that costs one ``stat``.

    A file modified a moment ago is not cached, because a new file may have the same date, size and inode. Threads may share a mirror.
    """

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file
        self._known: tuple[_Mark, str] | None = None

    def text(self) -> str | None:
        """Return what the file holds now; None where there is no file. Raises OSError and UnicodeDecodeError."""
        known = self._known
        try:
            if known is not None and known[0] == _mark(self._file.stat()):
                return known[1]
            now = time.time_ns()
            with self._file.open(encoding="utf-8") as stream:
                status = os.fstat(stream.fileno())
                text = stream.read()
        except FileNotFoundError:
            self._known = None
            return None
        self._known = (_mark(status), text) if now - status.st_mtime_ns > _SETTLED_NS else None
        return text


_Mark = tuple[int, int, int]


def _mark(status: os.stat_result) -> _Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def locked(directory: pathlib.Path, name: str) -> Iterator[None]:
    """Hold the lock of that name in a machine's directory, which processes and threads share; a holder's death lets go of it. Raises OSError."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def rewrite(file: pathlib.Path, text: str) -> None:
    """Make a file of a machine's directory hold exactly this, durably, or leave it as it was; raises OSError.

    The new content is written beside it, synced and renamed, and the directory synced. The caller holds the file's lock, so one name for what is
    beside is enough.
    """
    beside = file.with_name(f"{file.name}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE), "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(file)
    descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(file: pathlib.Path, *, replace: bool) -> str:
    """Write a new id whole or not at all; without ``replace`` the first of several writers wins."""
    fresh = str(uuid.uuid4())
    with contextlib.suppress(FileExistsError):
        _write(file, fresh, replace=replace)
        return fresh
    return file.read_text("ascii").strip()


def _write(file: pathlib.Path, text: str, *, replace: bool) -> None:
    """Write a line whole or not at all; raises FileExistsError where it is there already and is not to be replaced."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        os.write(descriptor, f"{text}\n".encode())
        os.fsync(descriptor)
        if replace:
            pathlib.Path(temporary).replace(file)
        else:
            os.link(temporary, file)
    finally:
        os.close(descriptor)
        pathlib.Path(temporary).unlink(missing_ok=True)
