"""Prepared claims that are gone and that the kubelet does not know are unprepared after a grace period."""

import pathlib
import threading

from drakit.core import errors, names
from drakit.node import engine, orphans
from fakes import crash_node, manual_clock


def test_the_grace_period_begins_when_the_kubelet_forgets_the_claim() -> None:
    clock, tracked = manual_clock.ManualClock(last=10**6), {names.ClaimUid("one")}
    silence = orphans.GracePeriod(lambda: tracked, clock)
    for _ in range(3):
        assert not silence.is_over(names.ClaimUid("one"))
        clock.moment += orphans.BLIND_GRACE
    tracked.clear()
    assert not silence.is_over(names.ClaimUid("one")), "the wait begins when the kubelet forgets"


class Node:
    """A node with one prepared claim, its kubelet's books, and a clock."""

    def __init__(self) -> None:
        self.world = crash_node.CrashNode()
        self.engine: engine.Engine = self.world.boot()
        self.ref = self.world.claim("chip-0")
        assert self.engine.prepare([self.ref], self.world.caller)[self.ref.uid].error == ""
        self.clock = manual_clock.ManualClock(last=10**6)
        self.tracked: frozenset[str] | None = frozenset()
        self.registered = True
        self.collector = orphans.OrphanCollector(
            self.engine,
            self.world.journal,
            self.world.claims,
            tracked=lambda: self.tracked,  # type: ignore[arg-type, return-value]
            is_registered=lambda: self.registered,
            clock=self.clock,
        )

    def look_after(self, seconds: float) -> int:
        self.clock.moment += seconds
        return self.collector.check(threading.Event())


def test_an_existing_claim_is_not_unprepared() -> None:
    node = Node()
    assert [node.look_after(seconds) for seconds in (0, 10**6)] == [0, 0]


def test_a_deleted_claim_unknown_to_the_kubelet_is_unprepared_after_the_grace_period() -> None:
    node = Node()
    node.world.claims.remove(node.ref)
    assert [node.look_after(seconds) for seconds in (0, orphans.GRACE / 2, orphans.GRACE)] == [0, 0, 1]
    assert node.world.is_clean


def test_a_claim_with_another_uid_counts_as_deleted() -> None:
    node = Node()
    node.world.claim("chip-1", name=node.ref.name)
    assert [node.look_after(seconds) for seconds in (0, orphans.GRACE)] == [0, 1]


def test_claims_in_the_kubelets_checkpoint_are_kept() -> None:
    node = Node()
    node.world.claims.remove(node.ref)
    node.tracked = frozenset({node.ref.uid})
    assert [node.look_after(orphans.BLIND_GRACE) for _ in range(3)] == [0, 0, 0]
    node.tracked = frozenset()
    assert [node.look_after(seconds) for seconds in (0, orphans.GRACE)] == [0, 1]


def test_without_the_kubelets_checkpoint_the_grace_period_is_longer() -> None:
    node = Node()
    node.world.claims.remove(node.ref)
    node.tracked = None
    assert [node.look_after(seconds) for seconds in (0, orphans.GRACE, orphans.BLIND_GRACE)] == [0, 0, 1]


def test_errors_and_an_unregistered_driver_restart_the_grace_period() -> None:
    node = Node()
    node.world.claims.remove(node.ref)
    assert node.look_after(0) == 0
    node.world.claims.failures = [errors.ApiError("away", status=500)]
    assert node.look_after(orphans.GRACE) == 0
    assert node.look_after(0) == 0
    node.registered = False
    assert node.look_after(orphans.GRACE) == 0
    node.registered = True
    assert [node.look_after(seconds) for seconds in (0, orphans.GRACE)] == [0, 1]


def test_api_requests_are_made_at_a_bounded_rate() -> None:
    node = Node()
    ref = node.world.claim("chip-1")
    node.engine.prepare([ref], node.world.caller)
    node.collector.check(threading.Event())
    assert node.clock.waits == [orphans.BETWEEN_REQUESTS] * 2


def test_only_the_kubelets_own_checkpoint_format_is_read(tmp_path: pathlib.Path) -> None:
    from drakit.kubelet import checkpoint
    from drakit_cluster.api.storage.store import Key
    from drakit_cluster.kubelet.pods import records as kubelets

    path = tmp_path / checkpoint.FILE
    assert checkpoint.tracked(path) is None
    kubelets.Checkpoint(path).save([kubelets.ClaimRecord(key=Key("default", "c"), uid="u-1")])
    assert checkpoint.tracked(path) == frozenset({names.ClaimUid("u-1")})
    kubelets.Checkpoint(path).save([])
    assert checkpoint.tracked(path) == frozenset()
    for damaged in (b"", b"[]", b"{}", b'{"Data": "{}", "Checksum": 1}', path.read_bytes().replace(b"Checksum", b"Checksun")):
        path.write_bytes(damaged)
        assert checkpoint.tracked(path) is None
