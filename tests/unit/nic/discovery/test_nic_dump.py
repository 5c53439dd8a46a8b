"""A kernel table that changes while it is read is read again (NLM_F_DUMP_INTR)."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from drakit.core import errors
from drakit_nic.netlink import rtnetlink

HEADER = struct.Struct("=IHHII")
GETLINK, NEWLINK, ERROR, DONE = 18, 16, 2, 3
WHOLE, INTERRUPTED = 0x2, 0x12


class Table:
    """A kernel that answers each dump with entries of these flags, the last dump for ever, or refuses with an error number."""

    def __init__(self, *answers: list[int], refusal: int = 0) -> None:
        self.answers: Iterator[list[int]] = iter(answers)
        self.refusal = refusal
        self.last: list[int] = []
        self.packet = b""
        self.reads = 0

    def sendall(self, request: bytes) -> None:
        sequence = HEADER.unpack_from(request)[3]
        self.reads += 1
        self.last = next(self.answers, self.last)
        end = struct.pack("=i", -self.refusal)
        kinds = [(NEWLINK, flags, struct.pack("=I", self.reads)) for flags in self.last] + [(ERROR if self.refusal else DONE, 0, end)]
        self.packet = b"".join(HEADER.pack(HEADER.size + len(body), kind, flags, sequence, 0) + body for kind, flags, body in kinds)

    def recv(self, _size: int) -> bytes:
        return self.packet


def dump(table: Any) -> tuple[bytes, ...]:
    with rtnetlink.failing_as("RTM_GETLINK"):
        return rtnetlink.Socket(table).dump(GETLINK, b"")


def test_an_interrupted_dump_is_read_again() -> None:
    table = Table([WHOLE, INTERRUPTED], [INTERRUPTED, WHOLE], [WHOLE])
    assert dump(table) == (struct.pack("=I", 3),)
    assert table.reads == 3


def test_a_table_that_never_stands_still_is_an_error_of_its_call() -> None:
    table = Table([INTERRUPTED])
    with pytest.raises(errors.HardwareError, match=r"^RTM_GETLINK: the table changed during each of 10 reads$"):
        dump(table)
    assert table.reads == 10


def test_what_the_kernel_refuses_is_an_error_of_its_call() -> None:
    with pytest.raises(errors.HardwareError, match=r"^RTM_GETLINK: .*not permitted"):
        dump(Table([], refusal=1))
