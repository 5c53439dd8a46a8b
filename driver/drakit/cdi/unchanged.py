"""What the files of a directory said, kept for as long as they do not change.

A file counts as unchanged while its inode, its size and both of its times are the same. Times come in ticks, and an inode may be used again at once:
of a file that changed in the last tick before it was looked at nothing is kept, because a later change could look the same.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

Said = TypeVar("Said")
_Look = tuple[int, int, int, int]

TICK_NS = 2 * 10**9
"""The coarsest tick of a file system that a node may have, FAT's; memory and disk file systems tick in milliseconds."""


class Readings(Generic[Said]):
    """Of one directory; safe between threads. ``now`` is the wall clock, in nanoseconds."""

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._kept: Mapping[str, tuple[_Look, Said]] = {}

    def of(self, directory: int, is_wanted: Callable[[str], bool], read: Callable[[str], Said]) -> dict[str, Said]:
        """What every wanted entry says, in order of name: ``read`` of those that changed since the last call, and nothing of those that are gone."""
        now, before = self._now(), self._kept
        found: dict[str, Said] = {}
        kept: dict[str, tuple[_Look, Said]] = {}
        for name, look in sorted(_looks(directory, is_wanted).items()):
            known = before.get(name)
            said = known[1] if known is not None and known[0] == look else read(name)
            found[name] = said
            if max(look[2:]) < now - TICK_NS:
                kept[name] = (look, said)
        self._kept = kept
        return found

    def forget(self) -> None:
        """Keep nothing."""
        self._kept = {}


def _looks(directory: int, is_wanted: Callable[[str], bool]) -> dict[str, _Look]:
    """Every wanted entry's inode, size, and when its content and when the inode changed."""
    found: dict[str, _Look] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if not is_wanted(entry.name):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found[entry.name] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found
