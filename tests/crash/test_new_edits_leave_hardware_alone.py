"""What containers get of a prepared claim changes (libraries were upgraded) while its pod runs; the process dies at any step of remembering it."""

import contextlib
import dataclasses
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import driver, edits, lifecycle
from fakes import author, crash_node


class Upgraded(author.FakeDriver):
    """The same hardware, with one more variable for containers."""

    def prepare(self, grant: driver.Grant[author.Tuning]) -> driver.Prepared:
        made = super().prepare(grant)
        return dataclasses.replace(made, edits=edits.Edits(env={**made.edits.env, "FAKE_LIBRARY": "2"}))


STEPS = ("before refresh", "after refresh", "before write", "after write")


def running() -> tuple[crash_node.CrashNode, claims.ClaimRef]:
    """A world where a claim is prepared, and the driver was upgraded since."""
    node = crash_node.CrashNode()
    ref = node.claim("chip-0-left", "chip-1")
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    node.driver_type = Upgraded
    return node, ref


def dying_at(number: int, steps: list[str]) -> Callable[[str], None]:
    def step(what: str) -> None:
        assert "make" not in what, "the hardware of a running pod was touched"
        steps.append(what)
        if len(steps) > number:
            raise crash_node.Crash(what)

    return step


def steps_of_an_upgrade() -> list[str]:
    node, ref = running()
    started = node.boot()
    steps: list[str] = []
    node.step = dying_at(1 << 30, steps)
    started.prepare([ref], node.caller)
    return steps


def is_upgraded(node: crash_node.CrashNode, ref: claims.ClaimRef) -> bool:
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED
    remembered = all(kept.edits is not None and kept.edits.env["FAKE_LIBRARY"] == "2" for kept in entry.grants)
    return remembered and all(b"FAKE_LIBRARY" in content for content in node.cdi.files.values())


def test_new_edits_are_journaled_and_written_without_touching_hardware() -> None:
    steps = steps_of_an_upgrade()
    assert [what for what in steps if what in STEPS[:2]] == list(STEPS[:2])
    assert set(steps) == set(STEPS)


@pytest.mark.parametrize("number", range(len(steps_of_an_upgrade())))
def test_a_crash_at_any_step_does_not_affect_the_running_pod(number: int) -> None:
    node, ref = running()
    started = node.boot()
    node.step = dying_at(number, [])
    with contextlib.suppress(crash_node.Crash):
        started.prepare([ref], node.caller)
    node.step = dying_at(1 << 30, [])
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    assert is_upgraded(node, ref)
    node.step = lambda _: None
    assert node.boot().unprepare([ref], node.caller)[ref.uid] == ""
    assert node.is_clean


def test_unchanged_edits_cost_no_commit() -> None:
    node, ref = running()
    started = node.boot()
    started.prepare([ref], node.caller)
    steps: list[str] = []
    node.step = dying_at(1 << 30, steps)
    started.prepare([ref], node.caller)
    assert set(steps) == {"before write", "after write"}
