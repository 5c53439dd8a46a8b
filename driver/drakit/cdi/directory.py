"""Read and write the CDI directory of a node (core.ports.CdiDirectory): one file for each grant, beside those of other vendors.

Invariants:

- A file appears atomically: it is written under a temporary name that runtimes ignore (no ``.json``), and renamed before ``write`` returns. Files are
  not synced, because they copy the journal: a power cut starts another boot, in which every claim is prepared and every file written again.
- Only names that start with ``<driver>-claim_`` and a claim UID, and this driver's temporary names, are read, replaced or removed.
- Files have mode 0644 and a new directory has mode 0755, as with CDI's own tools: a specification has no secret, and runtimes and inspection tools
  that do not run as root read it too. Only root can write.

Two processes of a rolling update may write at once. A writer locks its own temporary file, which no other user can open; at the start, temporary
files without a lock are removed, because their writers are dead. Files that other users can open are never locked, because an flock needs no write
right.
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
# The errors of opening a symbolic link, and a socket.
_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO})

_FileContent = tuple[edits.CdiName, edits.Edits | None]


class Directory:
    """The files of one driver in one CDI directory. Raises CdiError when it cannot be created, read or written; no file is half written."""

    def __init__(self, path: pathlib.Path, *, driver: str) -> None:
        self.path = path
        self._driver = spec.check_driver(driver)
        prefix = re.escape(spec.file_prefix(driver))
        self._name = re.compile(rf"{prefix}(?P<uid>{_UID})-.+\.json")
        self._temporary = re.compile(rf"\.{prefix}[0-9a-f]{{16}}\.tmp")
        self._reported: set[str] = set()
        self._remove_stale()

    def write(self, name: edits.CdiName, content: edits.Edits) -> None:
        """Write the file, unless it has this content already. Raises CdiError, ClaimError."""
        if name.driver != self._driver:
            raise errors.CdiError(f"driver: {name.driver!r} is not {self._driver!r}, the owner of these files")
        target, wanted = spec.file(name, content)
        with self._as_cdi_errors(target), self._opened() as directory:
            if _content(directory, target, len(wanted) + 1) != wanted:
                _replace(directory, target, f".{spec.file_prefix(self._driver)}", wanted)

    def remove(self, claim_uid: names.ClaimUid) -> None:
        """Remove every file of a claim, if there are any. Raises CdiError, ClaimError.

        A directory with a file's name is not removed: CdiError is raised after all files are removed.
        """
        spec.check_uid(claim_uid, "claim.uid")
        with self._as_cdi_errors(""):
            if not self.path.exists():
                return
            with self._opened() as directory:
                own = [entry for entry in self._names_of(directory, claim_uid) if self._uid_in(entry) == claim_uid]
                failures = [failure for entry in own if (failure := _unlink(directory, entry)) is not None]
        for failure in failures:
            with self._as_cdi_errors(str(failure.filename)):
                raise failure

    def claims(self) -> frozenset[names.ClaimUid]:
        """Return the claims that have a file of this driver. Raises CdiError."""
        with self._as_cdi_errors(""), contextlib.suppress(FileNotFoundError), os.scandir(self.path) as entries:
            with_uids = ((self._uid_in(entry.name), entry) for entry in entries)
            return frozenset(uid for uid, entry in with_uids if uid and not entry.is_dir(follow_symlinks=False))
        return frozenset()

    def of(self, claim_uid: names.ClaimUid) -> Mapping[edits.CdiName, edits.Edits | None]:
        """Return the identity and edits of each file of a claim, in order of name. Raises CdiError.

        A file whose content does not match its name is ignored, and so is a directory, as by runtimes. Edits that ``write`` did not write are None.
        Each case is logged, a directory only once.
        """
        spec.check_uid(claim_uid, "claim.uid")
        with self._as_cdi_errors(""):
            if not self.path.exists():
                return {}
            with self._opened() as directory:
                own = [entry for entry in sorted(self._names_of(directory, claim_uid)) if self._uid_in(entry) == claim_uid]
                return dict(item for entry in own if (item := self._file_content(directory, entry)) is not None)

    def _file_content(self, directory: int, entry: str) -> _FileContent | None:
        """Return the identity and edits of a file; None for an ignored one."""
        content = _content(directory, entry, spec.SIZE_MAX + 1)
        if content is not None or not _is_directory(directory, entry):
            return _read(self.path / entry, content, self._driver)
        if entry not in self._reported:
            self._reported.add(entry)
            _log.warning("CDI file ignored: path is a directory", path=str(self.path / entry))
        return None

    def _uid_in(self, entry: str) -> names.ClaimUid | None:
        match = self._name.fullmatch(entry)
        return names.ClaimUid(match["uid"]) if match else None

    def _names_of(self, directory: int, claim_uid: names.ClaimUid) -> list[str]:
        """Return the entries with the prefix of a claim; a plain prefix match is fast in a directory with files of thousands of claims."""
        prefix = f"{spec.file_prefix(self._driver)}{claim_uid}-"
        return [entry for entry in _listing(directory) if entry.startswith(prefix)]

    def _remove_stale(self) -> None:
        """Create the directory if it is missing, and remove the temporary files of dead writers."""
        with self._as_cdi_errors(""), self._opened() as directory:
            for entry in _listing(directory):
                if self._temporary.fullmatch(entry):
                    _remove_unlocked(directory, entry)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield a descriptor of the directory, which is created if it is missing (a reboot empties /var/run)."""
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
    def _as_cdi_errors(self, entry: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = _FIXES.get(error.errno or 0, "")
            message = f"{self.path / entry}: {error.strerror or error}" + (f"; {fix}" if fix else "")
            raise errors.CdiError(message) from error


def _read(path: pathlib.Path, content: bytes | None, driver: str) -> _FileContent | None:
    """Return the identity and edits of a file; None for content that does not match the file's name."""
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
    return os.listdir(directory)  # noqa: PTH208 - a Path cannot be a descriptor


def _content(directory: int, name: str, limit: int) -> bytes | None:
    """Return at most ``limit`` bytes of a regular file; None when there is no regular file of this name."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            return None
        raise
    try:
        content = os.read(descriptor, limit)
        while 0 < len(content) < limit and (chunk := os.read(descriptor, limit - len(content))):
            content += chunk
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
    """Remove a file if it exists; return the error for a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        return error
    return None


def _replace(directory: int, name: str, prefix: str, content: bytes) -> None:
    """Write a file under a temporary name and rename it; after a failure the temporary file is removed and the old file stays."""
    temporary, descriptor = _locked_temporary(directory, prefix)
    try:
        unwritten = memoryview(content)
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
        os.fchmod(descriptor, _FILE_MODE)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def _locked_temporary(directory: int, prefix: str) -> tuple[str, int]:
    """Create a temporary file of mode 0600, lock it while its writer lives, and return its name and descriptor."""
    while True:
        name = f"{prefix}{os.urandom(8).hex()}.tmp"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=directory)
        if _try_lock(descriptor) and os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # A starting process removed the file before it was locked.


def _remove_unlocked(directory: int, name: str) -> None:
    """Remove a temporary file that its writer no longer locks; it may be absent, because the writer renamed it."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=directory)
        try:
            if _try_lock(descriptor):
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock the file by this descriptor, and return whether that succeeded."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
