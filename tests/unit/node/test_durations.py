"""A histogram says what the library's own says, and loses nothing that threads add at the same time."""

import concurrent.futures

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st

from drakit.node import metrics

BUCKETS = (0.001, 0.01, 0.1, 1.0)


def text_of(registry: prometheus_client.CollectorRegistry) -> list[str]:
    """The page without the times at which the library's own was made."""
    return [line for line in prometheus_client.generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((0.0, *BUCKETS, 0.0005, 0.02, 2.0, 45.0)))))
def test_the_page_is_the_one_that_the_library_s_own_histogram_gives(added: list[tuple[str, float]]) -> None:
    theirs, ours = prometheus_client.CollectorRegistry(), prometheus_client.CollectorRegistry()
    library = prometheus_client.Histogram("took_seconds", "How long.", ("verb",), buckets=BUCKETS, registry=theirs)
    own = metrics.Durations("took_seconds", "How long.", ("verb",), buckets=BUCKETS)
    ours.register(own)
    for verb, seconds in added:
        library.labels(verb).observe(seconds)
        own.observe((verb,), seconds)
    assert text_of(ours) == text_of(theirs)


def test_nothing_that_threads_add_at_once_is_lost() -> None:
    registry = prometheus_client.CollectorRegistry()
    own = metrics.Durations("took_seconds", "How long.", ("verb",), buckets=BUCKETS)
    registry.register(own)

    def add() -> None:
        for _ in range(2000):
            own.observe(("a",), 0.5)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(add)
    assert registry.get_sample_value("took_seconds_count", {"verb": "a"}) == 16000
    assert registry.get_sample_value("took_seconds_sum", {"verb": "a"}) == 8000.0
