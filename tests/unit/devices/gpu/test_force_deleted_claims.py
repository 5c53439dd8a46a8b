"""A claim that somebody deleted by force gives its partition back, as soon as nobody else shares it, and no other claim notices."""

import pathlib
import threading

from drakit.core import lifecycle
from drakit.node import orphans
from fakes import gpu_crowd, ticking


def test_the_partition_of_a_deleted_claim_is_removed_with_its_last_share(tmp_path: pathlib.Path) -> None:
    with gpu_crowd.crowd(tmp_path, milliseconds=0) as crowd:
        alone, first, second = crowd.claims[1], crowd.claims[0], crowd.claims[gpu_crowd.GPUS * gpu_crowd.PARTITIONS]
        for claim in (alone, first, second):
            crowd.prepare(claim)
        assert crowd.instances() == {0: 1, 1: 1, **dict.fromkeys(range(2, gpu_crowd.GPUS), 0)}
        clock = ticking.Ticking()
        looks = orphans.OrphanCollector(
            crowd.engine, crowd.journal, crowd.source, tracked=frozenset, is_registered=lambda: True, clock=clock
        )

        def look_until_sure() -> int:
            found = 0
            for _ in range(5):
                found += looks.look(threading.Event())
                clock.moment += orphans.LOOK_AGAIN
            return found

        for claim in (alone, first):
            crowd.source.remove(claim)
        assert look_until_sure() == 2
        assert crowd.instances() == {0: 1, **dict.fromkeys(range(1, gpu_crowd.GPUS), 0)}, "the other share still needs its partition"
        assert [entry.claim for entry in crowd.journal.entries() if entry.state is lifecycle.State.PREPARED] == [second]
        crowd.source.remove(second)
        assert look_until_sure() == 1
        assert not any(crowd.instances().values())
        assert not crowd.journal.entries()
        assert not list((tmp_path / "cdi").iterdir())
