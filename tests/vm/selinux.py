"""SELinux of the machine, as the kernel's own files in ``/sys/fs/selinux`` show it (Linux, security/selinux/selinuxfs.c)."""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator

FOLDER = pathlib.Path("/sys/fs/selinux")
ENFORCE = FOLDER / "enforce"
_LOG = pathlib.Path("/dev/kmsg")
_RATE_LIMIT = pathlib.Path("/proc/sys/kernel/printk_ratelimit")
_DENIAL = re.compile(r"avc: +denied +\{ (.+?) \} .*scontext=(\S+) tcontext=(\S+) tclass=(\S+)")
_RECORD_BYTES = 8192


def is_on() -> bool:
    """Whether the kernel of this machine has SELinux with a policy."""
    return ENFORCE.exists()


@dataclasses.dataclass(frozen=True, order=True)
class Denial:
    """What the policy denied: permissions on objects of a class and type to processes of a type."""

    source: str
    permissions: str
    target: str
    kind: str


class Denials:
    """What was denied since this was made, as the kernel logged it."""

    def __init__(self) -> None:
        self._log = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._log, 0, os.SEEK_END)

    def of(self, types: frozenset[str]) -> set[Denial]:
        """Return the new denials in which a process or an object has one of these types."""
        found = (_DENIAL.search(record) for record in self._records())
        denials = {Denial(type_of(match[2]), match[1], type_of(match[3]), match[4]) for match in found if match}
        return {denial for denial in denials if {denial.source, denial.target} & types}

    def close(self) -> None:
        """Close the kernel's log."""
        os.close(self._log)

    def _records(self) -> Iterator[str]:
        with contextlib.suppress(BlockingIOError):
            while True:
                yield os.read(self._log, _RECORD_BYTES).decode(errors="replace")


@contextlib.contextmanager
def enforced() -> Iterator[Denials]:
    """The policy enforced, and what it denies from now on, all of which the kernel logs."""
    limit = _RATE_LIMIT.read_text()
    _RATE_LIMIT.write_text("0")
    denials = Denials()
    ENFORCE.write_text("1")
    try:
        assert ENFORCE.read_text() == "1"
        yield denials
    finally:
        ENFORCE.write_text("0")
        denials.close()
        _RATE_LIMIT.write_text(limit)


def process_label(process: int) -> str:
    """Return the label of a process."""
    return pathlib.Path(f"/proc/{process}/attr/current").read_text().rstrip("\0\n")


def file_label(path: pathlib.Path) -> str:
    """Return the label of a file or folder."""
    return os.getxattr(path, "security.selinux").decode().rstrip("\0")


def type_of(label: str) -> str:
    """Return the type in a label."""
    return label.split(":")[2]


def may(process: str, permission: str, target: str, kind: str) -> bool:
    """Return whether the policy lets processes of a type do something with objects of a type and class."""
    folder = FOLDER / "class" / kind
    bit = int((folder / "perms" / permission).read_text()) - 1
    answer = _ask("access", process, target, kind)
    return bool(int(answer.split()[0], 16) >> bit & 1)


def created(process: str, folder: str, kind: str) -> str:
    """Return the type that an object of a class gets where a process of a type creates it in a folder of a type."""
    return type_of(_ask("create", process, folder, kind))


def _ask(name: str, process: str, target: str, kind: str) -> str:
    index = (FOLDER / "class" / kind / "index").read_text()
    descriptor = os.open(FOLDER / name, os.O_RDWR)
    try:
        role = "system_r" if kind.endswith("_socket") else "object_r"
        os.write(descriptor, f"system_u:system_r:{process}:s0 system_u:{role}:{target}:s0 {index}".encode())
        return os.read(descriptor, _RECORD_BYTES).decode().rstrip("\0")
    finally:
        os.close(descriptor)
