"""Claims with binding conditions: begun when they are bound, gone on with when they are prepared, undone when they are not wanted any more."""

import dataclasses
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import errors, lifecycle, names
from drakit.node import engine
from fakes import crash_node, fpga


@pytest.fixture
def node() -> crash_node.CrashNode:
    return made()


def made() -> crash_node.CrashNode:
    node = crash_node.CrashNode()
    node.driver_type = fpga.FpgaDriver
    return node


def driver(node: crash_node.CrashNode) -> fpga.FpgaDriver:
    assert isinstance(node.driver, fpga.FpgaDriver)
    return node.driver


def state(node: crash_node.CrashNode, ref: claims.ClaimRef) -> lifecycle.State | None:
    entry = node.journal.entry(ref.uid)
    return None if entry is None else entry.state


def prepare(node: crash_node.CrashNode, started: engine.Engine, ref: claims.ClaimRef) -> str:
    return started.prepare([ref], node.caller)[ref.uid].error


def test_a_bind_creates_and_journals_and_prepare_continues_it(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    steps: list[str] = []
    node.step = steps.append
    started.bind(ref, node.caller)
    assert (state(node, ref), node.hardware.made) == (lifecycle.State.PREPARING, {"chip-0": 1})
    assert prepare(node, started, ref) == ""
    assert state(node, ref) is lifecycle.State.PREPARED
    assert steps.count("before make chip-0") == 1
    assert "before begin_unprepare" not in steps
    assert started.unprepare([ref], node.caller) == {ref.uid: ""}
    assert node.is_clean


def test_a_restart_between_bind_and_prepare_undoes_nothing(node: crash_node.CrashNode) -> None:
    ref = node.claim("chip-0")
    node.boot().bind(ref, node.caller)
    steps: list[str] = []
    node.step = steps.append
    assert prepare(node, node.boot(), ref) == ""
    assert [step for step in steps if "make" in step] == []


def test_after_a_reboot_between_bind_and_prepare_both_run_again(node: crash_node.CrashNode) -> None:
    ref = node.claim("chip-0")
    node.boot().bind(ref, node.caller)
    node.hardware.made.clear()
    node.boot_id = "boot-2"
    started = node.boot()
    assert state(node, ref) is None
    assert prepare(node, started, ref) == ""
    assert node.hardware.made == {"chip-0": 1}


def test_a_prepare_without_a_bind_binds_first(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    assert prepare(node, started, ref) == ""
    assert driver(node).bound == 1
    started.bind(ref, node.caller)
    assert driver(node).bound == 1, "what is prepared is not bound again"


@pytest.mark.parametrize("error", [errors.ConfigError("no such bitstream"), errors.DeviceGoneError("unplugged")])
def test_a_final_error_leaves_nothing(node: crash_node.CrashNode, error: Exception) -> None:
    started, ref = node.boot(), node.claim("chip-0", "chip-1")
    driver(node).refusals = [error]
    with pytest.raises(type(error)):
        started.bind(ref, node.caller)
    assert node.is_clean


def test_a_transient_error_keeps_the_begun_claim(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    driver(node).refusals = [errors.RetryError("half done", after=1)]
    with pytest.raises(errors.RetryError):
        started.bind(ref, node.caller)
    assert state(node, ref) is lifecycle.State.PREPARING
    started.bind(ref, node.caller)
    assert node.hardware.made == {"chip-0": 1}


@pytest.mark.parametrize("is_rebooted", [False, True], ids=["by hand", "after a reboot"])
def test_a_device_that_takes_several_calls_to_be_ready_gets_there_by_prepares_alone(
    node: crash_node.CrashNode, *, is_rebooted: bool
) -> None:
    ref = node.claim("chip-0")
    if is_rebooted:
        assert prepare(node, node.boot(), ref) == ""
        node.boot_id = "boot-2"
        node.hardware.made.clear()
    started, steps = node.boot(), list[str]()
    driver(node).refusals = [errors.RetryError("half done", after=1), errors.RetryError("almost done", after=1)]
    node.step = steps.append
    assert [prepare(node, started, ref) for _ in range(3)] == ["half done", "almost done", ""]
    assert steps.count("after begin") == 1
    assert state(node, ref) is lifecycle.State.PREPARED


def test_unprepare_releases_a_claim_left_begun_by_a_prepare(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    driver(node).refusals = [errors.RetryError("half done", after=1)]
    assert prepare(node, started, ref) == "half done"
    assert state(node, ref) is lifecycle.State.PREPARING
    assert started.unprepare([ref], node.caller) == {ref.uid: ""}
    assert node.is_clean


def test_a_bound_device_is_held_against_other_claims(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    started.bind(ref, node.caller)
    other = node.claim("chip-0")
    with pytest.raises(errors.DeviceBusyError, match="still held by claim"):
        started.bind(other, node.caller)
    started.abandon(ref, None, node.caller)
    started.bind(other, node.caller)


def test_a_bound_claim_is_undone_only_when_its_allocation_changed(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    started.bind(ref, node.caller)
    claim = node.claims.fetch(ref)
    assert not started.abandon(ref, claim, node.caller)
    moved = dataclasses.replace(claim, results=(dataclasses.replace(claim.results[0], device="chip-1"),))
    assert started.abandon(ref, moved, node.caller)
    assert node.is_clean
    assert not started.abandon(ref, None, node.caller)


def test_a_prepared_claim_is_never_undone_by_the_binding_loop(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    prepare(node, started, ref)
    assert not started.abandon(ref, None, node.caller)
    assert state(node, ref) is lifecycle.State.PREPARED


def test_a_reallocated_claim_is_bound_again(node: crash_node.CrashNode) -> None:
    started, ref = node.boot(), node.claim("chip-0")
    started.bind(ref, node.caller)
    claim = node.claims.fetch(ref)
    node.claims.put(dataclasses.replace(claim, results=(dataclasses.replace(claim.results[0], device="chip-1"),)))
    started.bind(ref, node.caller)
    assert node.hardware.made == {"chip-1": 1}


def crash_at(number: int) -> Callable[[str], None]:
    left = [number]

    def step(what: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise crash_node.Crash(what)

    return step


def work(node: crash_node.CrashNode, ref: claims.ClaimRef, *, abandoned: bool) -> None:
    started = node.boot()
    started.bind(ref, node.caller)
    if abandoned:
        started.abandon(ref, None, node.caller)
    else:
        started.prepare([ref], node.caller)
        started.unprepare([ref], node.caller)


def steps_of(*, abandoned: bool) -> int:
    node, steps = made(), list[str]()
    node.step = steps.append
    work(node, node.claim("chip-0", "chip-1"), abandoned=abandoned)
    return len(steps)


MATRIX = [(abandoned, number) for abandoned in (False, True) for number in range(steps_of(abandoned=abandoned))]


@pytest.mark.parametrize("abandoned,number", MATRIX)
def test_after_a_crash_at_any_step_a_bind_can_be_continued_or_undone(abandoned: bool, number: int) -> None:  # noqa: FBT001
    for wanted in (True, False):
        node = made()
        ref = node.claim("chip-0", "chip-1")
        node.step = crash_at(number)
        with pytest.raises(crash_node.Crash):
            work(node, ref, abandoned=abandoned)
        node.step = lambda _: None
        started = node.boot()
        if wanted:
            started.bind(ref, node.caller)
            assert prepare(node, started, ref) == ""
            assert node.hardware.made == {"chip-0": 1, "chip-1": 1}
            started.unprepare([ref], node.caller)
        else:
            started.abandon(ref, None, node.caller)
            entry = node.journal.entry(ref.uid)
            assert entry is None or entry.state is lifecycle.State.PREPARED
            started.unprepare([ref], node.caller)
        assert node.is_clean


def test_a_driver_without_bind_has_its_half_states_undone(node: crash_node.CrashNode) -> None:
    ref = node.claim("chip-0")
    node.boot().bind(ref, node.caller)

    class ByHand(fpga.FpgaDriver):
        bind = None  # type: ignore[assignment] # as if it had none

    node.driver_type = ByHand
    node.boot()
    assert node.is_clean


def test_an_attribute_of_the_author_s_hides_no_verb(node: crash_node.CrashNode) -> None:
    class Wrapping(fpga.FpgaDriver):
        wrapped = object()

    node.driver_type = Wrapping
    ref = node.claim("chip-0")
    node.boot().bind(ref, node.caller)
    assert node.hardware.made == {"chip-0": 1}


def test_binding_an_unknown_claim_is_a_claim_error(node: crash_node.CrashNode) -> None:
    ref = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000000"), namespace="x", name="y")
    with pytest.raises(errors.ClaimError):
        node.boot().bind(ref, node.caller)
