"""Read untrusted files: only regular ones, up to a size limit, without blocking on a pipe."""

import errno
import os
import pathlib
import stat
from collections.abc import Callable

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a pipe; use - for standard input"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def read_bytes(path: pathlib.Path, *, limit: int, follow_links: bool = True) -> bytes:
    """Return the content of a regular file with at most ``limit`` bytes.

    Raises OSError with a readable reason as its ``strerror``, also for a file of another kind, for a longer one, and, without ``follow_links``, for a
    symbolic link in the last part of the path.
    """
    try:
        descriptor = os.open(path, _FLAGS | (0 if follow_links else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed here", str(path)) from error
        if error.errno == errno.ENXIO:
            raise OSError(errno.EINVAL, "is a socket, not a regular file", str(path)) from error
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
            raise OSError(errno.EINVAL, f"is {kind}", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = stream.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"has more than {limit} bytes", str(path))
    return content


def read_text(path: pathlib.Path, *, limit: int, encoding: str = "utf-8", follow_links: bool = True) -> str:
    """Return the text of a file. Raises OSError as ``read_bytes`` does, and for bytes that are not text."""
    content = read_bytes(path, limit=limit, follow_links=follow_links)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"is not UTF-8 text (byte {error.start + 1})", str(path)) from error
