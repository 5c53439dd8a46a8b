"""The conformance suite passes a good driver and names what is wrong with a bad one."""

import dataclasses
import os
import pathlib
import re
import signal
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import drakit
from drakit import testing
from drakit.testing import crashing
from fakes import author


def on(hardware: author.Hardware, kind: type[author.FakeDriver] = author.FakeDriver) -> Callable[[], author.FakeDriver]:
    return lambda: kind(hardware)


def check(kind: type[author.FakeDriver] = author.FakeDriver, **options: Any) -> testing.Report:
    hardware = author.Hardware()
    return testing.check_driver(on(hardware, kind), hardware=lambda: dict(hardware.made), consumed={"bandwidth": "1G"}, **options)


ONCE = 10_000
"""Lets the check of crashes, which takes as long as all others, die once for each claim: for tests of other checks."""
TUNING = {"apiVersion": "fake.example.com/v1", "kind": "Tuning", "speed": 3}


WATCH = "watch() returns before or when the driver stops"
PARTS = "no two claims get the same exclusive part"
EARLIER = "claims of earlier releases keep their hardware and can be undone"
NODES = "device nodes that prepare returns exist on this host"
LOST = "claims are restored after a lost journal, and can be undone"


class Recalling(author.FakeDriver):
    """Knows what it must have planned, because its plan is a function of the grant."""

    def recall(self, grant: drakit.Grant[author.Tuning]) -> drakit.Record:
        return self.plan(grant)


class Confused(author.FakeDriver):
    """Recalls something else than what it planned."""

    def recall(self, grant: drakit.Grant[author.Tuning]) -> drakit.Record:
        return {"identity": f"another-{grant.device.name}"}


@pytest.mark.parametrize("every", [29, pytest.param(4, marks=pytest.mark.full)])
def test_a_good_driver_passes_every_check(every: int) -> None:
    report = check(Recalling, every=every, parameters=[TUNING], refused_parameters=[{**TUNING, "speed": 0}])
    assert {item.name for item in report.checks if not item.passed} == {
        "unprepare undoes a claim that was bound and never prepared",
        WATCH,
        NODES,
        EARLIER,
        PARTS,
    }
    assert report.crash_points > 25, "the lines of driver and engine, for a half, a whole and a share"
    assert "crash points" in str(report)


def test_a_check_that_does_not_apply_is_reported_as_skipped() -> None:
    report = check(device_names=["chip-0-left"], every=ONCE)
    warned = {item.name: item.message for item in report.checks if item.verdict is drakit.Verdict.WARNING}
    assert warned == {
        LOST: "plan() chooses intents and there is no recall(), so the intents cannot be restored when the journal is lost; add recall()"
    }
    assert {item.name: item.message for item in report.checks if item.verdict is drakit.Verdict.UNKNOWN} == {
        "two shares of one device do not affect each other": "no device allows multiple allocations",
        "two shares in one container agree on every variable": "no device allows multiple allocations",
        "valid parameters are accepted": "no parameters were given",
        "unprepare undoes a claim that was bound and never prepared": "no device has binding conditions that bind() makes true",
        WATCH: "the driver has no watch()",
        NODES: "prepare() returns no device node",
        "the amounts of a claim make a difference": "no device can be given in two amounts",
        EARLIER: "intents and records have their first form, and earlier= has no claim of an earlier release",
        PARTS: "exclusive names no variable or device node that identifies a part, such as 'ENGINE_*'",
    }


def test_a_wrong_recall_is_found() -> None:
    with pytest.raises(testing.CheckError, match=f"FAIL  {LOST}: chip-0-left: recall\\(\\) returned .*another-chip-0-left"):
        check(Confused, device_names=["chip-0-left"], every=ONCE)


class WithoutEdits(author.FakeDriver):
    """Sets hardware up and gives the container nothing, so that it has no CDI files."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        return dataclasses.replace(super().prepare(grant), edits=drakit.Edits())

    def recall(self, grant: drakit.Grant[author.Tuning]) -> drakit.Record:
        return self.plan(grant)


def test_a_driver_without_edits_keeps_claims_in_use_and_is_warned_of_the_others() -> None:
    report = check(WithoutEdits, device_names=["chip-0-left"], every=ONCE)
    (warned,) = [item.message for item in report.checks if item.verdict is drakit.Verdict.WARNING]
    assert warned.startswith(
        "chip-0-left: prepare() returns no edits, so no CDI file shows after a lost journal that the claim was prepared"
    )


class Bare(author.FakeDriver):
    """Finds no chip."""

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory()


def test_a_driver_without_devices_fails_for_that_alone() -> None:
    with pytest.raises(testing.CheckError, match="breaks 1 of") as raised:
        check(Bare, parameters=[TUNING])
    assert "FAIL  discover() returns devices, and the same ones twice: discover() offers no device;" in str(raised.value)
    assert "n/a   valid parameters are accepted: discover() offers no device to try" in str(raised.value)


class Greedy(author.FakeDriver):
    """Offers a chip of which a part draws two of the one that its counter set has."""

    def discover(self) -> drakit.Inventory:
        offered = super().discover()
        drawn = drakit.CounterConsumption(counter_set="chip-0", counters={"left": 2})
        wide = drakit.Device(name="chip-0-wide", attributes={"kind": "wide"}, consumes=(drawn,))
        return dataclasses.replace(offered, devices=(*offered.devices, wide))


def test_a_device_that_draws_more_than_its_counter_set_has_is_found() -> None:
    with pytest.raises(testing.CheckError, match="breaks 1 of") as raised:
        check(Greedy, device_names=["chip-0-left"], every=ONCE)
    assert (
        "FAIL  no device consumes more of a counter than its set has: chip-0-wide consumes 2 of counter left, and counter set chip-0 has 1: "
        "no claim can ever get the device\n"
    ) in str(raised.value)


class Rememberer(author.FakeDriver):
    """Keeps what it made in its own memory, so that another process does not find it."""

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.mine: set[str] = set()

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        self.mine.add(str(grant.intent["identity"]))
        return super().prepare(grant)

    def unprepare(self, grant: drakit.Grant[author.Tuning]) -> None:
        if str(grant.intent["identity"]) in self.mine:
            super().unprepare(grant)


class Careless(author.FakeDriver):
    config_types: ClassVar[tuple[type[object], ...]] = (author.Tuning,)

    def discover(self) -> drakit.Inventory:
        self.hardware.present = self.hardware.present ^ {"chip-1"}
        return super().discover()


@pytest.mark.parametrize(
    "kind,obligation",
    [
        (Rememberer, "unprepare succeeds in another process, without the claim"),
        (Careless, "discover() returns devices, and the same ones twice"),
    ],
)
def test_a_broken_obligation_is_named(kind: type[author.FakeDriver], obligation: str) -> None:
    with pytest.raises(testing.CheckError, match="obligations") as raised:
        check(kind, device_names=["chip-0-left"], every=ONCE)
    assert f"FAIL  {obligation}" in str(raised.value)


class Ambiguous(author.FakeDriver):
    """Gives every share and every device its own value of one variable."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        made = super().prepare(grant)
        return dataclasses.replace(made, edits=drakit.Edits(env={"FAKE": str(grant.intent["identity"]), "MODE": "same for all"}))


def test_a_variable_that_two_shares_set_differently_is_found() -> None:
    with pytest.raises(testing.CheckError, match="breaks 2 of") as raised:
        check(Ambiguous, device_names=["pipe"], every=ONCE)
    assert re.search(
        r"FAIL  two shares in one container agree on every variable: pipe: FAKE is '[0-9a-f-]{36}' for one share and "
        r"'[0-9a-f-]{36}' for the other, and a container with both shares has only one value; put grant.share_id into the name",
        str(raised.value),
    )


@pytest.mark.parametrize("device, beside", [("chip-0-left", "chip-0-right"), ("chip-0", "chip-1-left")])
def test_a_variable_that_two_devices_set_differently_is_found(device: str, beside: str) -> None:
    with pytest.raises(testing.CheckError, match="breaks 1 of") as raised:
        check(Ambiguous, device_names=[device], every=ONCE)
    assert (
        f"FAIL  two devices in one container agree on every variable: FAKE is '{device}' for {device} and '{beside}' for {beside}, "
        "and a container with both devices has only one value; put the device's name into the variable's\n"
    ) in str(raised.value)


def test_devices_of_which_a_container_can_have_one_alone_may_share_a_variable() -> None:
    hardware = author.Hardware()
    hardware.present = {"chip-0"}
    report = testing.check_driver(on(hardware, Ambiguous), device_names=["chip-0"], every=ONCE)
    (skipped,) = [item.message for item in report.checks if item.name == "two devices in one container agree on every variable"]
    assert skipped == "no two devices can be prepared at once"


class Misplaced(author.FakeDriver):
    """Gives containers a device node that is not on the host."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        edits = drakit.Edits(device_nodes=(drakit.DeviceNode(path="/dev/no-such-board"),))
        return dataclasses.replace(super().prepare(grant), edits=edits)


def test_a_device_node_that_is_not_on_the_host_is_a_warning() -> None:
    report = check(Misplaced, device_names=["chip-0-left"], every=ONCE)
    (warned,) = [item.message for item in report.checks if item.verdict is drakit.Verdict.WARNING and item.name == NODES]
    assert warned == "device node /dev/no-such-board: No such file or directory, so no container can start with it on this host"


class Leaking(author.FakeDriver):
    """Leaves a trace of every claim in hardware of which there is much."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        self.hardware.made[f"trace of {grant.claim.uid}"] = 1
        return super().prepare(grant)


def test_a_leak_is_reported_as_the_difference_only() -> None:
    hardware = author.Hardware()
    hardware.made = {f"slot-{number}": number for number in range(1000)}
    with pytest.raises(testing.CheckError) as raised:
        testing.check_driver(on(hardware, Leaking), hardware=lambda: dict(hardware.made), device_names=["chip-0-left"], every=ONCE)
    failed = [line for line in str(raised.value).splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1, "on hardware that was left changed, a later check would blame the wrong obligation"
    assert "n/a   a crash at any line, then a retry or unprepare, leaves nothing behind: not checked, because 'prepare and" in str(
        raised.value
    )
    assert re.fullmatch(
        r"FAIL  prepare and then unprepare leave nothing behind: "
        r"the hardware differs from its state before: \['trace of [0-9a-f-]{36}'\] is there that was not: 1",
        failed[0],
    )
    assert all(len(line) < 400 and "slot" not in line for line in failed)


class FileHardware(author.Hardware):
    """Hardware in files, which outlive the process."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__()
        self.folder = folder

    def make(self, identity: str, speed: int) -> None:
        (self.folder / identity).write_text(str(speed))

    def unmake(self, identity: str) -> None:
        (self.folder / identity).unlink()

    @property
    def made(self) -> dict[str, int]:
        return {file.name: int(file.read_text() or 0) for file in self.folder.iterdir()}

    @made.setter
    def made(self, value: dict[str, int]) -> None:
        assert value == {}


def test_a_driver_whose_hardware_outlives_it_survives_sigkill(tmp_path: pathlib.Path) -> None:
    hardware = FileHardware(tmp_path)
    report = testing.check_driver(
        on(hardware), hardware=lambda: hardware.made, device_names=["chip-0-left"], death=crashing.Death.KILL, every=40
    )
    assert report.crash_points > 5


def test_a_sigkill_names_the_line_at_which_it_came(tmp_path: pathlib.Path) -> None:
    hardware = FileHardware(tmp_path)

    def work() -> None:
        with testing.Node(lambda: author.FakeDriver(hardware)) as node:
            node.prepare(node.claim("chip-0-left"))

    point = next(testing.crash_points(author.FakeDriver(hardware), work, death=crashing.Death.KILL))
    assert re.fullmatch(r"crash point 0 at author\.py:\d+ \(__init__\)", str(point))


class Interrupted(BaseException):
    """What ends a check from outside."""


def test_a_child_that_hangs_does_not_outlive_an_interrupted_check(tmp_path: pathlib.Path) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    def hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(60)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            next(testing.crash_points(author.FakeDriver(author.Hardware()), hang, death=crashing.Death.KILL))
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_work_that_fails_by_itself_is_no_crash_point(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise ValueError("a bug of the work")

    with pytest.raises(AssertionError, match="failed by itself"):
        next(testing.crash_points(author.FakeDriver(author.Hardware()), fails, death=crashing.Death.KILL))
    assert "a bug of the work" in capfd.readouterr().err


def test_shares_that_do_not_fit_twice_are_reported_as_skipped() -> None:
    hardware = author.Hardware()
    report = testing.check_driver(
        on(hardware), hardware=lambda: dict(hardware.made), consumed={"bandwidth": "6G"}, device_names=["pipe"], every=ONCE
    )
    result = [(item.passed, item.message) for item in report.checks if "two shares" in item.name]
    assert result == [(None, "two claims of {'bandwidth': '6G'} do not fit on pipe; reduce consumed")] * 2


class Picky(author.FakeDriver):
    """Fails in the middle of a check."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        if grant.claim.uid != getattr(self.hardware, "first", grant.claim.uid):
            raise drakit.RetryError("only one", after=1)
        self.hardware.first = grant.claim.uid  # type: ignore[attr-defined] # a mark of the test's own
        return super().prepare(grant)

    def unprepare(self, grant: drakit.Grant[author.Tuning]) -> None:
        vars(self.hardware).pop("first", None)
        super().unprepare(grant)


def test_a_failed_check_does_not_make_others_fail() -> None:
    with pytest.raises(testing.CheckError) as raised:
        check(Picky, device_names=["pipe"], every=ONCE)
    assert str(raised.value).count("FAIL") == 1
    assert "FAIL  two shares of one device do not affect each other: only one" in str(raised.value)


class Waiting(author.FakeDriver):
    """Waits in its watch for events, until it has to stop."""

    def watch(self, context: drakit.DriverContext) -> None:
        context.report_health(drakit.HealthReport(device="chip-0", health=drakit.Health.HEALTHY))
        context.stopping.wait()


class Stuck(author.FakeDriver):
    def watch(self, context: drakit.DriverContext) -> None:
        while not context.stopping.is_set():
            time.sleep(0.01)
        time.sleep(3)


class Broken(author.FakeDriver):
    def watch(self, context: drakit.DriverContext) -> None:
        raise KeyError("fan")


@pytest.mark.parametrize(
    "kind, said", [(Stuck, "watch() did not return within 1 s after context.stopping was set"), (Broken, "KeyError: 'fan'"), (Waiting, "")]
)
def test_a_watch_that_fails_or_does_not_return_is_found(kind: type[author.FakeDriver], said: str) -> None:
    try:
        report = check(kind, device_names=["chip-0-left"], every=ONCE)
    except testing.CheckError as error:
        report = error.report
    assert next(item.message for item in report.checks if item.name == WATCH) == said
    assert report.count(drakit.Verdict.FAILED) == bool(said)
