"""Mock machines: descriptions of whole nodes, one YAML file each in this folder, and the directory of a mock machine's state.

A machine has a name, a description, and one key for each device family (``gpus``, ``nics``); each family reads and checks its
own key. The directory outlives the driver that uses it: it holds the state of the mock hardware and the id of the machine's current boot.

A family of another distribution names its key, and the package with its machines, by an entry point of the group ``drakit.machines``:

    [project.entry-points."drakit.machines"]
    tpus = "tpu_driver.machines"
"""

import contextlib
import dataclasses
import difflib
import functools
import importlib.resources
import importlib.resources.abc
import os
import pathlib
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping

from drakit import entry_points, tables
from drakit.core import errors
from drakit.inputs import file_locks, files

_SUFFIX = ".yaml"
SIZE_MAX = 4 << 20
"""The size limit of a machine's file, in bytes."""
GROUP = "drakit.machines"
"""The group of entry points."""
_FAMILIES = ("gpus", "nics")
BOOT_ID = "boot_id"
_OWNER_FILE = "machine"
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_SETTLED_NS = 100_000_000
"""Longer than a tick of the clock of file times, which is 10 ms at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The choice of a mock machine, its state directory, and its owner.

    ``owner`` (a node's name) distinguishes two machines of one kind: GPU UUIDs are derived from it.
    """

    name: str
    directory: pathlib.Path
    owner: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Machine:
    """A machine as its file describes it; ``families`` has the part of each family, by key. An unchanged file is the same object."""

    name: str
    description: str
    families: dict[str, object]

    def family(self, key: str) -> tables.Table:
        """Return a fresh reader over one family's part, as ``{key: ...}``; its ``rows(key)`` or ``table(key)`` is the content."""
        part = {key: self.families[key]} if key in self.families else {}
        return tables.Table(part, f"{self.name}: ")


def names(family: str = "") -> tuple[str, ...]:
    """Return the names of all machines, sorted; with ``family``, of those that have that key."""
    return tuple(name for name in sorted(_files()) if not family or family in load(name).families)


@functools.cache
def _others() -> Mapping[str, importlib.resources.abc.Traversable]:
    """Return the folders of other distributions' machines by the key of their family."""
    folders = {}
    for point in entry_points.of(GROUP):
        try:
            folders[point.name] = importlib.resources.files(point.value)
        except Exception as error:
            reason = f"cannot read {entry_points.origin(point)}: {error!r}; repair or uninstall it"
            raise entry_points.unusable(point, reason) from error
    return folders


@functools.cache
def _files() -> Mapping[str, importlib.resources.abc.Traversable]:
    """Return the files of all installed machines by name."""
    entries = (entry for folder in (*_others().values(), importlib.resources.files(__name__)) for entry in folder.iterdir())
    return {entry.name.removesuffix(_SUFFIX): entry for entry in entries if entry.name.endswith(_SUFFIX)}


def numa_nodes(row: tables.Table) -> tuple[int, ...]:
    """Return the NUMA node of a device's row, and those as near: ``numaNode: 2``, ``nearNumaNodes: [3]``."""
    node = row.optional("numaNode", row.integer)
    return () if node is None else (node, *(row.optional("nearNumaNodes", row.integers) or ()))


def load(name: str) -> Machine:
    """Return the machine of a name, or of a file if ``name`` has a ``/``. Raises SettingsError, which lists the known names."""
    if "/" in name:
        return _load_file(pathlib.Path(name))
    stored = _files()
    if name not in stored:
        longer = [known for known in names() if known.startswith(name)]
        close = longer or difflib.get_close_matches(name, names(), n=1)
        suggestion = f"did you mean {' or '.join(close)}? Known" if close else "known"
        raise errors.SettingsError(f"no mock machine {name!r}; {suggestion} are {', '.join(names())}, or give a path", key="mock.machine")
    machine = parse(stored[name].read_text("utf-8"), name)
    if machine.name != name:
        raise errors.SettingsError(f"is {machine.name!r}, but the file is {name}{_SUFFIX}", key=f"{name}: name")
    return machine


def _load_file(path: pathlib.Path) -> Machine:
    try:
        text = files.read_text(path, limit=SIZE_MAX)
    except OSError as error:
        raise errors.SettingsError(f"cannot read {path}: {error.strerror}", key="mock.machine") from error
    return parse(text, str(path))


@functools.lru_cache(maxsize=64)
def parse(text: str, origin: str) -> Machine:
    """Return a machine from the text of its file. Raises SettingsError for an unknown key at the top level.

    One start with mock hardware reads its machine several times, so the last machines are cached.
    """
    top = tables.from_yaml(text, origin)
    if "apiVersion" in top or "kind" in top:
        raise errors.SettingsError("is a Kubernetes object, not the description of a mock machine", key=origin)
    name, description = top.text("name"), top.text("description")
    families = {key: top.anything(key) for key in (*_FAMILIES, *_others()) if key in top}
    top.close()
    return Machine(name=name, description=description, families=families)


def folder_name(name: str) -> str:
    """Return the name of a folder for a machine, with special characters quoted."""
    return urllib.parse.quote(name, safe="").replace(".", "%2E")


def take_over(directory: pathlib.Path, name: str) -> None:
    """Record the machine in a new directory. Raises SettingsError if the directory belongs to another machine."""
    file = directory / _OWNER_FILE
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _write(file, name, replace=False)
        recorded = read_bytes(file).decode().strip()
    except UnicodeDecodeError as error:
        raise errors.SettingsError(f"{file} names no machine: {error}", key="mock.dir") from error
    except OSError as error:
        fix = "name a folder that can be written, with --folder or mock.dir"
        raise errors.SettingsError(f"cannot keep a mock machine in {directory}: {error.strerror}; {fix}", key="mock.dir") from error
    if recorded != name:
        fix = f"write --mock {recorded}, or give another --folder"
        raise errors.SettingsError(f"{directory} holds machine {recorded!r}, not {name!r}: {fix}", key="mock.dir")


def boot_id(directory: pathlib.Path) -> str:
    """Return the id of the machine's current boot, as in /proc/sys/kernel/random/boot_id. The first call boots the machine."""
    file = directory / BOOT_ID
    try:
        with contextlib.suppress(FileNotFoundError):
            return read_bytes(file).decode("ascii").strip()
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        return _publish(file, replace=False)
    except OSError as error:
        raise errors.SettingsError(f"cannot keep a mock machine in {directory}: {error.strerror}", key="mock.dir") from error


def reboot(directory: pathlib.Path) -> str:
    """Reboot the machine, and return the new boot id. State that hardware loses at a reboot is lost."""
    directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    return _publish(directory / BOOT_ID, replace=True)


class Mirror:
    """The content of a small file of a machine's directory, cached while the file is unchanged; a check costs one ``stat``.

    A file modified a moment ago is not cached, because a new file may have the same date, size and inode. Threads may share a mirror.
    """

    def __init__(self, file: pathlib.Path) -> None:
        self._path = os.fspath(file)
        self._cached: tuple[_Mark, str] | None = None

    def text(self) -> str | None:
        """Return the file's present text; None if there is no file. Raises OSError and UnicodeDecodeError."""
        cached = self._cached
        try:
            status = os.stat(self._path)  # noqa: PTH116 - a path object would cost as much as the call
            if cached is not None and cached[0] == _mark(status):
                return cached[1]
            now = time.time_ns()
            with open(self._path, "rb", buffering=0) as stream:  # noqa: PTH123 - as above
                status = os.fstat(stream.fileno())
                text = stream.read().decode()
        except FileNotFoundError:
            self._cached = None
            return None
        self._cached = (_mark(status), text) if now - status.st_mtime_ns > _SETTLED_NS else None
        return text


_Mark = tuple[int, int, int]


def _mark(status: os.stat_result) -> _Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_bytes(file: pathlib.Path) -> bytes:
    """Return the content of a small file of a machine's directory. Raises OSError, also for one that is too large or no plain file."""
    return files.read_bytes(file, limit=SIZE_MAX)


@contextlib.contextmanager
def locked(directory: pathlib.Path, name: str) -> Iterator[None]:
    """Hold a named lock of a machine's directory, shared by processes and threads. The kernel releases it if the holder dies. Raises OSError."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        file_locks.take(descriptor)
        yield
    finally:
        os.close(descriptor)


def rewrite(file: pathlib.Path, text: str) -> None:
    """Replace the content of a file of a machine's directory durably, or leave it unchanged. Raises OSError.

    The new content is written to a temporary file, synced and renamed, and the directory synced. The caller holds the file's lock, so the temporary
    file has a fixed name.
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
    """Write a new id atomically, and return the id in the file. Without ``replace`` the first of several writers wins."""
    fresh = str(uuid.uuid4())
    with contextlib.suppress(FileExistsError):
        _write(file, fresh, replace=replace)
        return fresh
    return read_bytes(file).decode("ascii").strip()


def _write(file: pathlib.Path, text: str, *, replace: bool) -> None:
    """Write a line atomically. Raises FileExistsError if the file exists and ``replace`` is not set."""
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
