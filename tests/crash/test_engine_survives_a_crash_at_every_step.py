"""The process dies before or after every effect of prepare and unprepare; the next one leaves the world as if nothing had happened."""

import contextlib
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from fakes import crash_node


def work(node: crash_node.CrashNode, refs: list[claims.ClaimRef]) -> None:
    started = node.boot()
    for ref in refs:
        started.prepare([ref], node.caller)
    for ref in refs:
        started.unprepare([ref], node.caller)


def build(shared: bool) -> tuple[crash_node.CrashNode, list[claims.ClaimRef]]:  # noqa: FBT001 - a parameter of the matrix
    node = crash_node.CrashNode()
    if shared:
        return node, [node.claim("pipe", shared=True), node.claim("pipe", shared=True, name="other")]
    return node, [node.claim("chip-0-left", "chip-0-right", "chip-1")]


def steps_of(shared: bool) -> int:  # noqa: FBT001
    node, refs = build(shared)
    steps: list[str] = []
    node.step = steps.append
    work(node, refs)
    return len(steps)


def crash_at(number: int) -> Callable[[str], None]:
    left = [number]

    def step(what: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise crash_node.Crash(what)

    return step


def known_to(node: crash_node.CrashNode) -> set[str]:
    """The hardware that the journal says may exist."""
    return {str(grant.intent["identity"]) for entry in node.journal.entries() for grant in entry.grants}


MATRIX = [(shared, number) for shared in (False, True) for number in range(steps_of(shared))]


@pytest.mark.parametrize("shared,number", MATRIX)
def test_a_crash_at_any_step_leaves_nothing_behind(shared: bool, number: int) -> None:  # noqa: FBT001
    node, refs = build(shared)
    node.step = crash_at(number)
    with pytest.raises(crash_node.Crash):
        work(node, refs)
    node.step = lambda _: None
    started = node.boot()
    assert set(node.hardware.made) <= known_to(node), "or nobody would undo what is never asked for again"
    for ref in refs:
        assert started.prepare([ref], node.caller)[ref.uid].error == ""
    assert len(node.hardware.made) == sum(len(entry.grants) for entry in node.journal.entries())
    for ref in refs:
        assert started.unprepare([ref], node.caller)[ref.uid] == ""
    assert node.is_clean


@pytest.mark.parametrize("shared,number", MATRIX)
def test_a_second_crash_during_recovery_changes_nothing(shared: bool, number: int) -> None:  # noqa: FBT001
    node, refs = build(shared)
    node.step = crash_at(number)
    with pytest.raises(crash_node.Crash):
        work(node, refs)
    for second in range(20):
        node.step = crash_at(second)
        with contextlib.suppress(crash_node.Crash):
            node.boot()
            break
    node.step = lambda _: None
    started = node.boot()
    for ref in refs:
        assert started.unprepare([ref], node.caller)[ref.uid] == ""
    assert node.is_clean


def test_the_matrix_is_not_empty() -> None:
    assert len(MATRIX) >= 60, "before and after every journal move, file and hardware call of both scenarios"


def test_recovery_without_the_kubelet_leaves_only_what_was_answered() -> None:
    node, refs = build(shared=False)
    node.step = crash_at(6)
    with pytest.raises(crash_node.Crash):
        work(node, refs)
    node.step = lambda _: None
    node.boot()
    assert node.is_clean
