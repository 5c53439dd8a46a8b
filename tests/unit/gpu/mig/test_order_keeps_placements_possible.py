"""Partitions are offered in the order that keeps most others possible, because the scheduler takes the first that fits."""

from drakit_gpu.mig import partitioning
from drakit_gpu.mock import machine

FOUND = partitioning.partitions(machine.load_model("a100-sxm4-40gb").profiles.values())


def starts(profile: str) -> list[int]:
    return [partition.placement.start for partition in FOUND if partition.profile.name == profile]


def possible_beside(partition: partitioning.Partition) -> int:
    return sum(not partition.placement.overlaps(other.placement) for other in FOUND)


def test_small_partitions_come_before_large_ones_and_media_engines_last_among_equals() -> None:
    names = list(dict.fromkeys(partition.profile.name for partition in FOUND))
    assert names == ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]


def test_small_partitions_fill_the_gpu_from_its_rear() -> None:
    assert starts("1g.5gb") == [6, 5, 4, 3, 2, 1, 0]
    assert starts("1g.10gb") == [6, 4, 2, 0]
    assert starts("2g.10gb") == [4, 2, 0]
    assert starts("3g.20gb") == [4, 0]


def test_the_first_placement_of_a_profile_leaves_no_fewer_others_than_any_later_one() -> None:
    for profile in {partition.profile for partition in FOUND}:
        left = [possible_beside(partition) for partition in FOUND if partition.profile is profile]
        assert left == sorted(left, reverse=True)


def test_the_first_small_partition_leaves_room_for_twenty_others_not_eighteen() -> None:
    beside = {partition.placement.start: possible_beside(partition) for partition in FOUND if partition.profile.name == "1g.5gb"}
    assert (beside[6], beside[5], beside[0]) == (20, 19, 18)


def test_the_order_does_not_depend_on_the_order_of_the_tables() -> None:
    tables = machine.load_model("a100-sxm4-40gb").profiles.values()
    turned = [(profile, placements[::-1]) for profile, placements in reversed(list(tables))]
    assert partitioning.partitions(turned) == FOUND
