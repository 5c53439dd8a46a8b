"""A table that changes while pyroute2 reads it is read again (NLM_F_DUMP_INTR), and what goes wrong is an error of its call."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyroute2
import pytest

from drakit.core import errors
from drakit_nic.discovery import listing

WHOLE: Any = {"header": {"flags": 0x2}}
INTERRUPTED: Any = {"header": {"flags": 0x12}}


class Table:
    """A table that gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers: Iterator[list[Any]] = iter(answers)
        self.last: list[Any] = []
        self.reads = 0

    def read(self) -> Iterable[Any]:
        self.reads += 1
        self.last = next(self.answers, self.last)
        return self.last


def test_an_interrupted_listing_is_read_again() -> None:
    table = Table([WHOLE, INTERRUPTED], [INTERRUPTED, WHOLE], [WHOLE])
    assert listing._dump(pyroute2, "RTM_GETLINK", table.read) == (WHOLE,)
    assert table.reads == 3


def test_a_listing_that_never_stands_still_is_an_error_of_its_call() -> None:
    table = Table([INTERRUPTED])
    with pytest.raises(errors.HardwareError, match=r"^RTM_GETROUTE: the table changed during each of 10 reads$"):
        listing._dump(pyroute2, "RTM_GETROUTE", table.read)
    assert table.reads == 10


def test_a_refused_listing_is_an_error_of_its_call() -> None:
    def refuse() -> Iterable[Any]:
        raise PermissionError(1, "Operation not permitted")

    with pytest.raises(errors.HardwareError, match=r"^RTM_GETADDR: .*not permitted"):
        listing._dump(pyroute2, "RTM_GETADDR", refuse)
