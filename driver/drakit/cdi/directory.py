"""The CDI directory of a node: core.ports.CdiDirectory, one file a grant, ours among those of other vendors.

Invariants:

- A file appears whole or not at all, whenever a process dies: it is written beside its place under a name that runtimes pass over (no ``.json``)
  and renamed before ``write`` returns. Nothing is synced: a file is a copy of what the journal holds, and after a power cut, which is another boot,
  every claim is prepared and every file written anew.
- Only names that start with ``<driver>-claim_`` and a claim UID are ever read, replaced or removed, and temporary names of our own.
- Files are 0644 and a missing directory is made 0755, as CDI's own tools do: a specification holds no secret, and runtimes and inspection tools
  that do not run as root read it too. Only root can write.

Two processes of a rolling update may write at once. A writer locks its own temporary file, which nobody else can open; at start, temporary files
without a lock are removed, because their writers are dead. Nothing is locked that another user can open: an flock needs no right to write.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import stat
from collections.abc import Iterator, Mapping

from drakit.cdi import spec
from drakit.core import edits, errors, names
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_UID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_FIXES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "raise the quota or free space",
    errno.EROFS: "mount it read-write into the driver's container",
    errno.EACCES: "let the driver write there",
    errno.EPERM: "let the driver write there",
    errno.ENOTDIR: "give the path of a directory",
    errno.EISDIR: "remove the directory that has the file's name",
    errno.ELOOP: "remove the symbolic link",
}
# How opening refuses a symbolic link, and a socket.
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO})

_Said = tuple[edits.CdiName, edits.Edits | None]


class Directory:
    """The files of one driver in one CDI directory. Raises CdiError when it cannot be made, read or written; then nothing is half written."""

    def __init__(self, path: pathlib.Path, *, driver: str) -> None:
        self.path = path
        self._driver = spec.check_driver(driver)
        prefix = re.escape(spec.file_prefix(driver))
        self._name = re.compile(rf"{prefix}(?P<uid>{_UID})-.+\.json")
        self._temporary = re.compile(rf"\.{prefix}[0-9a-f]{{16}}\.tmp")
        self._reported: set[str] = set()
        self._sweep()

    def write(self, name: edits.CdiName, content: edits.Edits) -> None:
        """Make the file hold exactly this; writing what is there changes nothing. Raises CdiError, ClaimError."""
        if name.driver != self._driver:
            raise errors.CdiError(f"driver: {name.driver!r} is not {self._driver!r}, whose files these are")
        target, wanted = spec.file(name, content)
        with self._refused(target), self._opened() as directory:
            if _content(directory, target, len(wanted) + 1) != wanted:
                _replace(directory, target, f".{spec.file_prefix(self._driver)}", wanted)

    def remove(self, claim_uid: names.ClaimUid) -> None:
        """Remove every file of a claim of this driver; nothing to remove is success. Raises CdiError, ClaimError.

        What is not ours to remove, a directory that has a file's name, is refused once all else is gone.
        """
        spec.check_uid(claim_uid, "claim.uid")
        with self._refused(""):
            if not self.path.exists():
                return
            with self._opened() as directory:
                own = [entry for entry in self._own(directory, claim_uid) if self._uid_of(entry) == claim_uid]
                refusals = [refusal for entry in own if (refusal := _unlink(directory, entry)) is not None]
        for refusal in refusals:
            with self._refused(str(refusal.filename)):
                raise refusal

    def claims(self) -> frozenset[names.ClaimUid]:
        """The claims that have a file of this driver. Raises CdiError."""
        with self._refused(""), contextlib.suppress(FileNotFoundError), os.scandir(self.path) as entries:
            found = ((self._uid_of(entry.name), entry) for entry in entries)
            return frozenset(uid for uid, entry in found if uid and not entry.is_dir(follow_symlinks=False))
        return frozenset()

    def of(self, claim_uid: names.ClaimUid) -> Mapping[edits.CdiName, edits.Edits | None]:
        """What the files of a claim are named after and hold, in order of name. Raises CdiError.

        Left out is a file whose content is not about the device that its name says, and a directory, which a runtime passes over too; None stands for
        edits that are not as ``write`` leaves them. The log tells of all three, of a directory once.
        """
        spec.check_uid(claim_uid, "claim.uid")
        with self._refused(""):
            if not self.path.exists():
                return {}
            with self._opened() as directory:
                own = [entry for entry in sorted(self._own(directory, claim_uid)) if self._uid_of(entry) == claim_uid]
                return dict(said for entry in own if (said := self._said(directory, entry)) is not None)

    def _said(self, directory: int, entry: str) -> _Said | None:
        """What a file of ours says; None for what is to be left out."""
        content = _content(directory, entry, spec.SIZE_MAX + 1)
        if content is not None or not _is_directory(directory, entry):
            return _read(self.path / entry, content, self._driver)
        if entry not in self._reported:
            self._reported.add(entry)
            _log.warning("CDI file ignored: path is a directory", path=str(self.path / entry))
        return None

    def _uid_of(self, entry: str) -> names.ClaimUid | None:
        match = self._name.fullmatch(entry)
        return names.ClaimUid(match["uid"]) if match else None

    def _own(self, directory: int, claim_uid: names.ClaimUid) -> list[str]:
        """The entries whose names start as those of a claim do: told by text alone, because a directory may hold files of thousands of claims."""
        start = f"{spec.file_prefix(self._driver)}{claim_uid}-"
        return [entry for entry in _listing(directory) if entry.startswith(start)]

    def _sweep(self) -> None:
        """Make the directory where missing, and remove the temporary files of dead writers."""
        with self._refused(""), self._opened() as directory:
            for entry in _listing(directory):
                if self._temporary.fullmatch(entry):
                    _remove_dead(directory, entry)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the directory, made first where missing (/var/run is emptied by a reboot)."""
        try:
            descriptor = os.open(self.path, _OPEN_DIRECTORY)
        except FileNotFoundError:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(_DIRECTORY_MODE)
            descriptor = os.open(self.path, _OPEN_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _refused(self, entry: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = _FIXES.get(error.errno or 0, "")
            message = f"{self.path / entry}: {error.strerror or error}" + (f"; {fix}" if fix else "")
            raise errors.CdiError(message) from error


def _read(path: pathlib.Path, content: bytes | None, driver: str) -> _Said | None:
    """Whose file this is, and its edits where they can be believed; None for a file that does not say what its name says."""
    name = None if content is None else spec.identity(content, driver)
    if content is None or name is None or spec.file_name(name) != path.name:
        _log.warning("CDI file ignored: content does not match its name", path=str(path))
        return None
    try:
        return name, spec.decode(name, content)
    except errors.CdiError as error:
        _log.warning("CDI file ignored: content was changed", path=str(path), error=str(error))
        return name, None


def _listing(directory: int | pathlib.Path) -> list[str]:
    return os.listdir(directory)  # noqa: PTH208 - of a descriptor too, which no Path can be


def _content(directory: int, name: str, limit: int) -> bytes | None:
    """At most ``limit`` bytes of a regular file; None when there is no such file. What is not a regular file has no content of ours."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    try:
        content = os.read(descriptor, limit)
        while 0 < len(content) < limit and (more := os.read(descriptor, limit - len(content))):
            content += more
    except (IsADirectoryError, BlockingIOError):
        return None
    finally:
        os.close(descriptor)
    return content


def _is_directory(directory: int, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


def _unlink(directory: int, name: str) -> IsADirectoryError | None:
    """Remove a file if it is there; the refusal where it is a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        return error
    return None


def _replace(directory: int, name: str, prefix: str, content: bytes) -> None:
    """Write a file under a temporary name and rename it; on failure the temporary file is gone and the old one stays."""
    temporary, descriptor = _locked_temporary(directory, prefix)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fchmod(descriptor, _FILE_MODE)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def _locked_temporary(directory: int, prefix: str) -> tuple[str, int]:
    """Create a temporary file of mode 0600 and hold its lock, which says that its writer lives; its name and descriptor."""
    while True:
        name = f"{prefix}{os.urandom(8).hex()}.tmp"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=directory)
        if _is_locked(descriptor) and os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # A process that has just started removed the file before it was locked.


def _remove_dead(directory: int, name: str) -> None:
    """Remove a temporary file whose writer no longer holds its lock; its name may be gone, because the writer renamed it."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=directory)
        try:
            if _is_locked(descriptor):
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether this descriptor could take the file's lock, and so holds it now."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
