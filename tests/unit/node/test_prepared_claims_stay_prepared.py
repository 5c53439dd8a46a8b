"""A prepared claim whose hardware answers otherwise: it is repaired where it lies or the call is refused; nothing is torn down under its pod."""

import contextlib
import dataclasses
from collections.abc import Callable

import pytest

from drakit import testing
from drakit.core import claim as claims
from drakit.core import driver, edits, errors, lifecycle
from fakes import author, crash_node

DEVICES = ("chip-0-left", "chip-1")


class Renumbered(author.FakeDriver):
    """The same hardware under another name, which record and edits say."""

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        made = super().prepare(grant)
        result = edits.Edits(env={name: f"{value}-renamed" for name, value in made.edits.env.items()})
        return dataclasses.replace(made, edits=result, record={"made": f"{grant.intent['identity']}-renamed"})


class Careful(author.FakeDriver):
    """Says that what it made is gone by an empty record, and makes it again only when it is asked as for the first time."""

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        if grant.record and str(grant.intent["identity"]) not in self.hardware.made:
            return driver.Prepared()
        return super().prepare(grant)


def running(driver_type: type[author.FakeDriver] = author.FakeDriver) -> tuple[crash_node.CrashNode, claims.ClaimRef]:
    """A world where a claim is prepared; from now on nothing of it may be taken away."""
    node = crash_node.CrashNode()
    node.driver_type = driver_type
    ref = node.claim(*DEVICES)
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    node.step = untouched()
    return node, ref


def untouched(also: Callable[[str], None] = lambda _: None) -> Callable[[str], None]:
    def step(what: str) -> None:
        assert what.split()[1] not in {"unmake", "remove", "begin_unprepare", "finish_unprepare"}, f"{what}: a running pod lost something"
        also(what)

    return step


def entry_of(node: crash_node.CrashNode, ref: claims.ClaimRef) -> lifecycle.Entry:
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED
    return entry


def assert_released(node: crash_node.CrashNode, ref: claims.ClaimRef) -> None:
    node.step = lambda _: None
    assert node.boot().unprepare([ref], node.caller) == {ref.uid: ""}
    assert node.is_clean


def test_hardware_that_was_renamed_is_remembered_under_its_new_name_and_stays() -> None:
    node, ref = running()
    node.driver_type = Renumbered
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    assert [kept.record["made"] for kept in entry_of(node, ref).grants] == ["chip-0-left-renamed", "chip-1-renamed"]
    assert all(b"-renamed" in content for content in node.cdi.files.values())
    assert_released(node, ref)


def test_hardware_that_is_gone_is_made_again_for_that_device_alone() -> None:
    node, ref = running(Careful)
    del node.hardware.made["chip-1"]
    steps: list[str] = []
    node.step = untouched(steps.append)
    answer = node.boot().prepare([ref], node.caller)[ref.uid]
    assert (answer.error, len(answer.devices)) == ("", 2)
    assert [step for step in steps if "make" in step] == ["before make chip-1", "after make chip-1"]
    assert all(kept.record for kept in entry_of(node, ref).grants)
    assert_released(node, ref)


def steps_of_a_repair() -> int:
    node, ref = running(Careful)
    node.hardware.made.clear()
    steps: list[str] = []
    node.step = untouched(steps.append)
    node.boot().prepare([ref], node.caller)
    return len(steps)


@pytest.mark.parametrize("number", range(steps_of_a_repair()))
def test_a_crash_at_any_step_of_a_repair_is_repaired_by_the_next_process(number: int) -> None:
    node, ref = running(Careful)
    node.hardware.made.clear()
    left = [number]

    def die(what: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise crash_node.Crash(what)

    node.step = untouched(die)
    with contextlib.suppress(crash_node.Crash):
        node.boot().prepare([ref], node.caller)
    node.step = untouched()
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    assert set(node.hardware.made) == set(DEVICES)
    assert all(kept.record for kept in entry_of(node, ref).grants)
    assert len(node.cdi.files) == 2
    assert_released(node, ref)


@pytest.mark.parametrize(
    "failure", [errors.DeviceGoneError("chip-1 is gone"), errors.DeviceBusyError("chip-1 is another's"), KeyError("bug")]
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_what_cannot_be_repaired_is_refused_and_the_claim_stays_prepared(failure: Exception, is_gone: bool) -> None:  # noqa: FBT001
    node, ref = running(Careful)
    files = dict(node.cdi.files)
    if is_gone:
        node.hardware.made.clear()
    started = node.boot()
    node.driver.failure = failure
    error = started.prepare([ref], node.caller)[ref.uid].error
    if isinstance(failure, errors.DrakitError):
        assert error.endswith("; the claim stays prepared and nothing was torn down; delete its pods to release the device")
    assert failure.args[0].partition(";")[0] in error
    entry_of(node, ref)
    assert node.cdi.files == files
    node.driver.failure = None
    assert started.prepare([ref], node.caller)[ref.uid].error == "", "and it is asked again at the next call"
    assert_released(node, ref)


def test_a_damaged_file_is_written_again_and_hardware_is_left_alone() -> None:
    node, ref = running()
    files = dict(node.cdi.files)
    node.cdi.files.clear()
    steps: list[str] = []
    node.step = untouched(steps.append)
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    assert node.cdi.files == files
    assert set(steps) == {"before write", "after write"}


def test_a_repair_reaches_the_real_journal_and_the_container() -> None:
    hardware = author.Hardware()
    made: list[type[author.FakeDriver]] = [author.FakeDriver]
    with testing.Node(lambda: made[0](hardware)) as node:
        ref = node.claim(*DEVICES)
        node.prepare(ref)
        made[0] = Renumbered
        node.restart()
        assert node.prepare(ref).env == {"FAKE_CHIP_0_LEFT": "chip-0-left-renamed", "FAKE_CHIP_1": "chip-1-renamed"}
        (entry,) = node.entries
        assert entry.grants[1].record == {"made": "chip-1-renamed"}
        made[0] = Careful
        node.restart()
        hardware.made.clear()
        node.prepare(ref)
        assert set(hardware.made) == set(DEVICES)
        node.unprepare(ref)
        assert node.is_clean
