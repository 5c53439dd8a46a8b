"""A simulated death ends what the driver started, as a real one does."""

import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Callable

import pytest

import drakit
from drakit import testing
from fakes import author, forked_cli, obligations

TASK = "chip-0-left"


class Watching(author.FakeDriver):
    """Has a watch of its own."""

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.ending = threading.Event()

    def start(self, context: drakit.DriverContext) -> None:
        self.context = context
        self.watching = threading.Thread(target=self.follow, name="the watch")
        self.watching.start()

    def stop(self) -> None:
        self.ending.set()
        self.watching.join()

    def follow(self) -> None:
        while not self.ending.wait(0.001):
            self.look()

    def look(self) -> None:
        self.context.report_health(drakit.HealthReport(device="chip-0", health=drakit.Health.HEALTHY))


class Forgiving(Watching):
    """Goes on whatever error its watch meets, and has no stop."""

    def stop(self) -> None:
        """Do nothing."""

    def follow(self) -> None:
        while True:
            with contextlib.suppress(Exception):
                self.look()


class Deaf(Forgiving):
    """Has a watch that neither calls the context nor ends."""

    def follow(self) -> None:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.001)


class Immortal(Watching):
    """Has a watch that nothing but its own end ends."""

    def stop(self) -> None:
        """Do nothing."""

    def follow(self) -> None:
        self.ending.wait()


class Unsure(Watching):
    """Waits in stop for what a start that was cut short has not begun."""

    def start(self, context: drakit.DriverContext) -> None:
        self.has_ended = threading.Event()
        raise testing.Crash

    def stop(self) -> None:
        self.has_ended.wait()


def die_in_each_line_of_a_start(kind: type[Watching]) -> int:
    hardware, points = author.Hardware(), 0

    def work() -> None:
        with testing.Node(lambda: kind(hardware)):
            pass

    for _ in testing.crash_points(lambda: kind(hardware), work, every=3):
        points += 1
        assert not [thread for thread in threading.enumerate() if thread.name == "the watch"]
    return points


def test_a_death_in_start_ends_the_watch() -> None:
    assert die_in_each_line_of_a_start(Watching) > 3


def test_a_stop_that_waits_for_ever_after_a_death_is_left() -> None:
    with pytest.raises(testing.Crash):
        testing.Node(lambda: Unsure(author.Hardware()))


@pytest.mark.parametrize("kind", [Forgiving, Deaf])
def test_a_watch_that_forgives_every_error_ends_by_a_death(kind: type[Watching]) -> None:
    with contextlib.suppress(testing.Crash), testing.Node(lambda: kind(author.Hardware())) as node:
        driver = node.driver
        raise testing.Crash
    assert isinstance(driver, Watching)
    assert not driver.watching.is_alive()


def test_a_thread_that_does_not_end_is_named() -> None:
    driver = Immortal(author.Hardware())
    named = r"after a simulated death thread 'the watch' \(at .*\.py:\d+ in \w+\) did not end"
    try:
        with pytest.raises(AssertionError, match=named), testing.Node(lambda: driver):
            raise testing.Crash
    finally:
        driver.ending.set()
        driver.watching.join()


class Leaky(Watching):
    """Does not stop its watch."""

    left: list[Watching]

    def stop(self) -> None:
        self.left.append(self)


def test_a_stop_that_ends_nothing_is_a_broken_obligation() -> None:
    hardware = author.Hardware()
    Leaky.left = []
    try:
        found = obligations.judged(
            "stop() ends every thread that start() started", lambda: Leaky(hardware), lambda: dict(hardware.made), (TASK,)
        )
    finally:
        for driver in Leaky.left:
            driver.ending.set()
    assert str(found).startswith("FAIL  stop() ends every thread that start() started: thread")
    assert "'the watch'" in found.message


def test_a_good_watch_passes() -> None:
    hardware = author.Hardware()
    report = testing.check_driver(lambda: Watching(hardware), hardware=lambda: dict(hardware.made), device_names=[TASK], every=40)
    assert next(check.passed for check in report.checks if check.name.startswith("stop()")) is True


ERRORS = """
import threading

import drakit
from drakit import testing


class FanDriver(drakit.Driver[drakit.NoConfig]):
    name = "fan.example.com"

    def __init__(self) -> None:
        self.ending = threading.Event()

    def discover(self):
        return drakit.Inventory.of(drakit.Device(name=name) for name in ("fan-0", "fan-1"))

    def prepare(self, grant):
        return drakit.Prepared(edits=drakit.Edits(env={grant.device.name.upper().replace("-", "_"): "on"}))

    def start(self, context):
        self.watching = threading.Thread(target=self.follow, args=(context,))
        self.watching.start()

    def stop(self):
        self.ending.set()
        self.watching.join()

    def follow(self, context):
        while not self.ending.wait(0.001):
            self.check(context)

    def check(self, context):
        context.report_health(drakit.HealthReport(device="fan-0", health=drakit.Health.HEALTHY))
        context.untaint("fan-0", "fan.example.com/failed")


class Forgiving(FanDriver):
    def follow(self, context):
        while not self.ending.wait(0.001):
            try:
                self.check(context)
            except Exception:
                pass


class Stopping(FanDriver):
    def follow(self, context):
        while not context.stopping.wait(10):
            self.check(context)

    def stop(self):
        self.watching.join()


def test_crash_points_work_for_a_driver_with_a_thread() -> None:
    testing.check_driver(FanDriver, every=59)


def test_crash_points_work_for_a_thread_that_catches_exceptions() -> None:
    testing.check_driver(Forgiving, every=59)


def test_crash_points_work_for_a_thread_that_waits_for_the_stop() -> None:
    testing.check_driver(Stopping, every=59)
"""


def test_drivers_with_threads_pass_with_warnings_as_errors_and_the_process_ends(
    commands: forked_cli.Commands, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "test_fan.py").write_text(ERRORS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # Importing a plugin again is a warning.
    done = commands.run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path, environment=environment, program="python")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def _maker(hardware: author.Hardware) -> Callable[[], author.FakeDriver]:
    def make() -> author.FakeDriver:
        return author.FakeDriver(hardware)

    return make


MAKES: dict[str, Callable[[author.Hardware], Callable[[], author.FakeDriver]]] = {
    "lambda": lambda hardware: lambda: author.FakeDriver(hardware),
    "function": _maker,
}


@pytest.mark.parametrize("name", MAKES)
def test_crash_points_take_anything_that_makes_a_driver(name: str) -> None:
    hardware = author.Hardware()
    make = MAKES[name](hardware)

    def work() -> None:
        make().discover()

    points = [point.where for point in testing.crash_points(make, work)]
    assert any(where.startswith("author.py:") for where in points)


class Described(author.FakeDriver):
    device_metadata = True

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        made = super().prepare(grant)
        return made  # noqa: RET504 - a line to die at, after the effect


def test_the_driver_of_a_node_is_the_authors_also_with_device_metadata() -> None:
    hardware = author.Hardware()
    with testing.Node(lambda: Described(hardware)) as node:
        assert isinstance(node.driver, Described)

        def work() -> None:
            node.prepare(node.claim("chip-0-left"))

        died = set()
        for point in testing.crash_points(node.driver, work, every=2):
            died.add(point.where.rpartition(" ")[2])
            node.restart()
            for entry in node.entries:
                node.unprepare(entry.claim)
        assert "(prepare)" in died
