"""A disk that records each write (the kernel's dm-log-writes), and the disk after a power cut at any point of the record.

The kernel adds a write to the record when it is permanent: a write with FUA (force unit access) at its end, all others at the next flush. So the
record has the order that a power cut sees. ``mark`` adds a text at once, so a program can record what it did elsewhere and what it answered.

What a disk has after a cut is not only a prefix of the record. Of the writes since the last flush, a disk with a volatile cache may have any, and
some may be torn between two physical sectors. ``Record.cut`` makes such disks from a seed.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

SECTOR = 512
WHOLE = 4096
"""Disks write this many bytes wholly or not at all. XFS relies on it: with parts of such a block its own recovery fails."""
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
END = "dm-log-writes-end"
RECORD_BYTES = 512 << 20
MOUNTED = {"ext4": ("ext4", 64 << 20, ("-q", "-F")), "xfs": ("xfs", 320 << 20, ("-q", "-f"))}
"""By file system: its type, the size of a disk for it in bytes (xfs takes no smaller one), and the arguments of mkfs."""


def command(*words: str | os.PathLike[str]) -> str:
    """Run a program and return its output."""
    ran = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, (words, ran.stderr)
    return ran.stdout.strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a record: a write of whole sectors with its flags, or a mark."""

    sector: int = 0
    data: bytes = b""
    flags: int = 0
    zeros: int = 0
    """The sectors of a discard, which has no data."""

    @property
    def text(self) -> str:
        """The text of a mark, empty for a write."""
        return self.data.decode() if self.flags & MARK else ""


class Record:
    """All that was written to a disk, from its empty file system on."""

    def __init__(self, base: pathlib.Path, entries: Sequence[Entry]) -> None:
        self._base = base
        self.entries = entries

    @property
    def flushes(self) -> int:
        """How often the disk was flushed, or wrote through its cache."""
        return sum(1 for entry in self.entries if entry.flags & (FLUSH | FUA))

    @contextlib.contextmanager
    def cut(self, position: int, chance: random.Random, memory: pathlib.Path) -> Iterator[tuple[pathlib.Path, Sequence[str]]]:
        """Mount a disk whose power ended when the record had this many entries. Yield its folder, and the marks that were made before."""
        done = self.entries[:position]
        # A file of its own for each disk: a loop device may keep blocks of a file that changes beside it.
        image = memory / f"cut-{position}"
        command("cp", "--sparse=always", self._base, image)
        try:
            _replay(done, chance, image)
            with looped(image) as device, mounted(device, memory / "mounted") as folder:
                yield folder, [entry.text for entry in done if entry.flags & MARK]
        finally:
            image.unlink()


def _replay(entries: Sequence[Entry], chance: random.Random, image: pathlib.Path) -> None:
    """Write to a disk what it has of these entries. A flush makes everything before it permanent, but not the data that came with it."""
    flushed = max((number for number, entry in enumerate(entries) if entry.flags & FLUSH), default=0)
    with image.open("r+b", buffering=0) as disk:
        for number, entry in enumerate(entries):
            if entry.flags & MARK:
                continue
            data = entry.data or bytes(entry.zeros * SECTOR)
            if number >= flushed and not entry.flags & FUA:
                data = data[: chance.choice([0, len(data), WHOLE * chance.randint(0, len(data) // WHOLE)])]
            os.pwrite(disk.fileno(), data, entry.sector * SECTOR)


class Recorder:
    """A mounted file system whose disk is recorded."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.folder, self._name = folder, name

    def mark(self, text: str) -> None:
        """Add a text to the record."""
        command("dmsetup", "message", self._name, "0", "mark", text)

    def flush(self) -> None:
        """Write all of the file system to the disk, as any other program of the node may cause it."""
        command("sync", "--file-system", self.folder)


@contextlib.contextmanager
def scratch() -> Iterator[pathlib.Path]:
    """A folder in memory, for images of disks."""
    with tempfile.TemporaryDirectory(prefix="drakit-cut-", dir="/dev/shm") as folder:
        yield pathlib.Path(folder)


@contextlib.contextmanager
def looped(file: pathlib.Path) -> Iterator[str]:
    """A block device of a file."""
    device = command("losetup", "--find", "--show", file)
    try:
        yield device
    finally:
        command("losetup", "--detach", device)


@contextlib.contextmanager
def mounted(device: str | pathlib.Path, folder: pathlib.Path, *options: str) -> Iterator[pathlib.Path]:
    """A file system in a folder."""
    folder.mkdir(exist_ok=True)
    command("mount", *options, device, folder)
    try:
        yield folder
    finally:
        command("umount", folder)


@contextlib.contextmanager
def recording(memory: pathlib.Path, kind: str) -> Iterator[tuple[Recorder, list[Record]]]:
    """A recorded file system, and a list that has its record once it is unmounted."""
    command("modprobe", "--all", "loop", "dm-log-writes", kind)
    base, written, log = memory / "base", memory / "written", memory / "log"
    _, size, options = MOUNTED[kind]
    for file, length in ((base, size), (log, RECORD_BYTES)):
        file.touch()
        os.truncate(file, length)
    command(f"mkfs.{kind}", *options, base)
    command("fallocate", "--dig-holes", base)
    command("cp", "--sparse=always", base, written)
    name, records = f"drakit-{memory.name}", list[Record]()
    with looped(written) as disk, looped(log) as device:
        table = f"0 {size // SECTOR} log-writes {disk} {device}"
        command("dmsetup", "create", name, "--table", table)
        try:
            with mounted(f"/dev/mapper/{name}", memory / "recorded") as folder:
                yield Recorder(folder, name), records
        finally:
            command("udevadm", "settle")
            command("dmsetup", "remove", "--retry", name)
    records.append(Record(base, entries_of(log)))
    log.unlink()
    written.unlink()


def entries_of(log: pathlib.Path) -> Sequence[Entry]:
    """Read the record that the kernel wrote to a device (drivers/md/dm-log-writes.c: the super block, then each entry's header and data)."""
    with log.open("rb") as stream:
        magic, version, count, sector = struct.unpack("<QQQI", stream.read(28))
        assert (magic, version, sector) == (MAGIC, 1, SECTOR), "the record has another format"
        stream.seek(SECTOR)
        entries = [_entry(stream) for _ in range(count)]
    assert entries[-1].text == END, "the record is not complete; make its device larger"
    return entries[:-1]


def save(entries: Sequence[Entry], log: pathlib.Path) -> None:
    """Write a record as ``entries_of`` reads it."""
    with log.open("wb") as stream:
        stream.write(struct.pack("<QQQI", MAGIC, 1, len(entries) + 1, SECTOR).ljust(SECTOR, b"\0"))
        for entry in (*entries, Entry(flags=MARK, data=END.encode())):
            is_mark = bool(entry.flags & MARK)
            sectors, length = (0, len(entry.data)) if is_mark else (entry.zeros or len(entry.data) // SECTOR, 0)
            header = struct.pack("<QQQQ", entry.sector, sectors, entry.flags, length) + (entry.data if is_mark else b"")
            stream.write(header.ljust(SECTOR, b"\0") + (b"" if is_mark else entry.data))


def _entry(stream: BinaryIO) -> Entry:
    header = stream.read(SECTOR)
    sector, sectors, flags, length = struct.unpack_from("<QQQQ", header)
    if flags & MARK:
        return Entry(flags=flags, data=header[32 : 32 + length].rstrip(b"\0"))
    if flags & DISCARD:
        return Entry(flags=flags, sector=sector, zeros=sectors)
    return Entry(flags=flags, sector=sector, data=stream.read(sectors * SECTOR))
