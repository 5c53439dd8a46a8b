"""A claim that somebody deleted by force gives its partition back, as soon as nobody else shares it, and no other claim notices."""

import pathlib
import threading

from drakit.core import lifecycle
from drakit.node import orphans
from fakes import concurrent_gpu_claims, manual_clock


def test_the_partition_of_a_deleted_claim_is_removed_with_its_last_share(tmp_path: pathlib.Path) -> None:
    with concurrent_gpu_claims.claimed_node(tmp_path, milliseconds=0) as claimed:
        alone, first, second = (
            claimed.claims[1],
            claimed.claims[0],
            claimed.claims[concurrent_gpu_claims.GPUS * concurrent_gpu_claims.PARTITIONS],
        )
        for claim in (alone, first, second):
            claimed.prepare(claim)
        assert claimed.instances() == {0: 1, 1: 1, **dict.fromkeys(range(2, concurrent_gpu_claims.GPUS), 0)}
        clock = manual_clock.ManualClock()
        looks = orphans.OrphanCollector(
            claimed.engine, claimed.journal, claimed.source, tracked=frozenset, is_registered=lambda: True, clock=clock
        )

        def look_until_sure() -> int:
            collected = 0
            for _ in range(5):
                collected += looks.check(threading.Event())
                clock.moment += orphans.SUSPECTED_INTERVAL
            return collected

        for claim in (alone, first):
            claimed.source.remove(claim)
        assert look_until_sure() == 2
        assert claimed.instances() == {0: 1, **dict.fromkeys(range(1, concurrent_gpu_claims.GPUS), 0)}, (
            "the other share still needs its partition"
        )
        assert [entry.claim for entry in claimed.journal.entries() if entry.state is lifecycle.State.PREPARED] == [second]
        claimed.source.remove(second)
        assert look_until_sure() == 1
        assert not any(claimed.instances().values())
        assert not claimed.journal.entries()
        assert not list((tmp_path / "cdi").glob("*.json"))
