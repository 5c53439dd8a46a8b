"""Backoff: pauses double up to the longest, and start again after a success."""

from drakit.core import backoff


def test_pauses_double_up_to_the_longest_and_a_success_resets_them() -> None:
    pauses = backoff.Backoff(0.5, 3.0)
    assert [pauses.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    pauses.reset()
    assert pauses.pause == pauses.next() == 0.5
