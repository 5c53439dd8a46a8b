"""A driver's watch is called at its interval, later after errors, and ends before the driver is stopped."""

import pathlib
import threading
from collections.abc import Callable, Sequence

import pytest

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, inventory
from drakit.node import background
from drakit.testing import fake_context
from fakes import manual_clock


class Watched(drivers.Driver[drivers.NoConfig]):
    """A driver whose calls of ``watch`` do what ``acts`` say, then nothing."""

    name = "fan.example.com"
    watch_interval = 10.0

    def __init__(self, *acts: Callable[[], None]) -> None:
        self.acts = list(acts)
        self.calls = 0

    def discover(self) -> inventory.Inventory:
        return inventory.Inventory()

    def prepare(self, grant: drivers.Grant[drivers.NoConfig]) -> drivers.Prepared:
        del grant
        return drivers.Prepared()

    def watch(self, context: contexts.DriverContext) -> None:
        del context
        self.calls += 1
        if self.acts:
            self.acts.pop(0)()


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def waits_of(driver: Watched, context: contexts.DriverContext, *, calls: int) -> Sequence[float]:
    clock = manual_clock.ManualClock(last=calls)
    background.WatchLoop(driver, context, clock).run(threading.Event())
    return clock.waits


@pytest.fixture
def context(tmp_path: pathlib.Path) -> fake_context.FakeContext:
    return fake_context.FakeContext(data_dir=tmp_path)


def test_a_watch_is_called_at_the_drivers_interval(context: fake_context.FakeContext) -> None:
    driver = Watched()
    assert waits_of(driver, context, calls=3) == [10.0, 10.0, 10.0]
    assert driver.calls == 3


def test_an_instance_has_the_interval_and_the_pauses_of_its_settings(context: fake_context.FakeContext) -> None:
    class Adjustable(Watched):
        def __init__(self, interval: float, *acts: Callable[[], None]) -> None:
            super().__init__(*acts)
            self.watch_interval = interval
            self.watch_retry = (interval / 10, interval)

    bus = raising(errors.HardwareError("bus", "no answer"))
    assert waits_of(Adjustable(30.0, bus), context, calls=3) == [3.0, 30.0, 30.0]
    assert waits_of(Adjustable(7.0), context, calls=1) == [7.0]


def test_pauses_double_after_errors_and_start_again_after_a_success(context: fake_context.FakeContext) -> None:
    bus = raising(errors.HardwareError("bus", "no answer"))
    waits = waits_of(Watched(bus, raising(ValueError("bug")), bus, lambda: None, bus), context, calls=6)
    assert waits == [1.0, 2.0, 4.0, 10.0, 1.0, 10.0]


def test_pauses_after_errors_are_at_most_five_minutes(context: fake_context.FakeContext) -> None:
    waits = waits_of(Watched(*[raising(errors.HardwareError("bus", "no answer"))] * 12), context, calls=12)
    assert max(waits) == waits[-1] == 300.0


def test_a_driver_chooses_the_range_of_the_pauses(context: fake_context.FakeContext) -> None:
    class Impatient(Watched):
        watch_retry = (0.5, 3.0)

    waits = waits_of(Impatient(*[raising(errors.HardwareError("bus", "no answer"))] * 5), context, calls=5)
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_driver_without_a_watch_of_its_own_has_none() -> None:
    class Plain(Watched):
        watch = drivers.Driver.watch

    assert drivers.watches(Watched())
    assert not drivers.watches(Plain())
