"""Reports of one kind: one in a period, and the number of those between."""

from drakit.telemetry import repeats
from fakes import manual_clock


def test_one_report_of_a_kind_is_due_in_a_period_and_has_the_count_of_the_others() -> None:
    clock = manual_clock.ManualClock()
    limit: repeats.Repeats[int] = repeats.Repeats(60, clock.monotonic)
    assert [limit.due(kind) for kind in (403, 403, 422, 403)] == [0, None, 0, None]
    clock.moment = 60
    assert [limit.due(kind) for kind in (403, 403)] == [2, None]


def test_kinds_are_forgotten_from_the_oldest_on() -> None:
    limit: repeats.Repeats[int] = repeats.Repeats(60, manual_clock.ManualClock().monotonic)
    assert all(limit.due(kind) == 0 for kind in range(repeats.KINDS_MAX + 1))
    assert limit.due(0) == 0
    assert limit.due(repeats.KINDS_MAX) is None
