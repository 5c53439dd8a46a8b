"""A scrape asks for what no claim has: the hardware is read once a minute at most, and a read that hangs holds no scrape up."""

import threading

import pytest

from drakit.core import advanced, errors
from drakit.node import unclaimed_cache
from fakes import manual_clock, waits

A_LEFTOVER = advanced.Leftover(kind="MIG instance", name="gpu-0/gi-1")


class Hardware:
    """Leftovers whose reads are counted, hang while ``answers`` is clear, and fail with ``error``."""

    def __init__(self) -> None:
        self.reads = 0
        self.found: list[advanced.Leftover] = [A_LEFTOVER]
        self.error: errors.HardwareError | None = None
        self.answers = threading.Event()
        self.answers.set()

    def read(self) -> list[advanced.Leftover]:
        self.reads += 1
        assert self.answers.wait(waits.SECONDS)
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture
def clock() -> manual_clock.ManualClock:
    return manual_clock.ManualClock()


def settle() -> None:
    """Wait for the reads in the background."""
    for thread in threading.enumerate():
        if thread.name == "unclaimed":
            thread.join(waits.SECONDS)


def test_scrapes_within_a_minute_read_once(clock: manual_clock.ManualClock) -> None:
    hardware = Hardware()
    cache = unclaimed_cache.UnclaimedCache(hardware.read, clock, first_seconds=30)
    assert [list(cache()) for _ in range(3)] == [[A_LEFTOVER]] * 3
    assert hardware.reads == 1
    hardware.found = []
    clock.moment += unclaimed_cache.SECONDS
    cache()
    settle()
    assert list(cache()) == []
    assert hardware.reads == 2


def test_a_read_that_hangs_holds_no_scrape_up_and_starts_no_other(clock: manual_clock.ManualClock) -> None:
    hardware = Hardware()
    cache = unclaimed_cache.UnclaimedCache(hardware.read, clock, first_seconds=30)
    cache()
    hardware.answers.clear()
    for _ in range(3):
        clock.moment += unclaimed_cache.SECONDS
        assert list(cache()) == [A_LEFTOVER], "what was read last"
    assert hardware.reads == 2
    hardware.answers.set()
    settle()


def test_a_first_read_that_hangs_shows_nothing(clock: manual_clock.ManualClock) -> None:
    hardware = Hardware()
    hardware.answers.clear()
    cache = unclaimed_cache.UnclaimedCache(hardware.read, clock, first_seconds=0)
    for _ in range(2):
        with pytest.raises(errors.HardwareError, match="not read yet"):
            cache()
    hardware.answers.set()
    settle()
    assert list(cache()) == [A_LEFTOVER]


def test_a_read_that_fails_is_an_error_until_the_next(clock: manual_clock.ManualClock) -> None:
    hardware = Hardware()
    hardware.error = errors.HardwareError("census", "no")
    cache = unclaimed_cache.UnclaimedCache(hardware.read, clock, first_seconds=30)
    for _ in range(2):
        with pytest.raises(errors.HardwareError, match="census: no"):
            cache()
    hardware.error = None
    hardware.answers.clear()
    clock.moment += unclaimed_cache.SECONDS
    with pytest.raises(errors.HardwareError):
        cache()
    hardware.answers.set()
    settle()
    assert list(cache()) == [A_LEFTOVER]
