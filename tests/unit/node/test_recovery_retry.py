"""What a start cannot recover, because another process holds a lock, is recovered while the driver serves."""

import threading

import pytest

from drakit.core import errors, lifecycle
from drakit.node import recovery_retry
from fakes import crash_node, manual_clock, waits


def half_prepared(node: crash_node.CrashNode) -> lifecycle.Entry:
    """Return the entry of a claim that a process left half prepared."""
    started, ref = node.boot(), node.claim("chip-0")
    started.prepare([ref], node.caller)
    node.journal.begin_unprepare(ref.uid)
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    return entry


class Moments(manual_clock.ManualClock):
    """A clock that runs ``then`` after a number of waits."""

    def __init__(self, after: int, then: threading.Event) -> None:
        super().__init__()
        self._after, self._then = after, then

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if len(self.waits) == self._after:
            self._then.set()
        return super().wait(event, seconds)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> crash_node.CrashNode:
    monkeypatch.setattr(recovery_retry, "LOCK_SECONDS", 0.0)
    return crash_node.CrashNode()


def test_a_locked_claim_is_retried_until_it_is_recovered(node: crash_node.CrashNode) -> None:
    entry = half_prepared(node)
    released, held = threading.Event(), threading.Event()

    def hold() -> None:
        with node.device_locks.hold(["chip-0"], lambda: True):
            held.set()
            assert released.wait(waits.SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(waits.SECONDS)
    retry = recovery_retry.RecoveryRetry(node.boot(recover=False), node.journal, Moments(2, released))
    retry.add([entry.claim.uid])
    assert retry.note() == f"1 claim not recovered yet, retrying: {entry.claim.uid}"
    retry.run(threading.Event())
    holder.join(waits.SECONDS)
    assert (retry.pending, retry.note(), node.is_clean) == ((), "", True)


def test_a_claim_changed_by_a_call_is_not_recovered_again(node: crash_node.CrashNode) -> None:
    entry = half_prepared(node)
    started = node.boot(recover=False)
    retry = recovery_retry.RecoveryRetry(started, node.journal, manual_clock.ManualClock())
    retry.add([entry.claim.uid])
    assert started.prepare([entry.claim], node.caller)[entry.claim.uid].error == ""
    made = dict(node.hardware.made)
    retry.run(threading.Event())
    assert (retry.pending, node.hardware.made) == ((), made)


def test_a_claim_that_fails_again_stays_and_the_loop_ends_with_the_driver(node: crash_node.CrashNode) -> None:
    entry = half_prepared(node)

    def fail(step: str) -> None:
        if step.startswith("before unmake"):
            raise errors.HardwareError("unmake", "broken")

    node.hardware.step = fail
    clock = manual_clock.ManualClock(last=5)
    retry = recovery_retry.RecoveryRetry(node.boot(recover=False), node.journal, clock)
    retry.add([entry.claim.uid])
    retry.run(threading.Event())
    assert (retry.pending, len(clock.waits)) == ((entry.claim.uid,), 5)
