"""One lock a claim, and none left over."""

import threading

import pytest

from drakit.core import names
from drakit.node import claim_locks

ONE, OTHER = names.ClaimUid("one"), names.ClaimUid("other")


def test_the_second_call_for_a_claim_waits_and_calls_for_others_do_not() -> None:
    locks = claim_locks.ClaimLocks()
    entered: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with locks.hold(ONE):
            inside.set()
            leave.wait(10)
            entered.append("first")

    def second() -> None:
        with locks.hold(ONE):
            entered.append("second")

    workers = [threading.Thread(target=first), threading.Thread(target=second)]
    workers[0].start()
    inside.wait(10)
    workers[1].start()
    with locks.hold(OTHER):
        entered.append("other")
    leave.set()
    for worker in workers:
        worker.join(10)
    assert entered == ["other", "first", "second"]
    assert len(locks) == 0


def test_a_failure_inside_frees_the_lock() -> None:
    locks = claim_locks.ClaimLocks()
    with pytest.raises(ZeroDivisionError), locks.hold(ONE):
        _ = 1 / 0
    with locks.hold(ONE):
        assert len(locks) == 1
    assert len(locks) == 0
