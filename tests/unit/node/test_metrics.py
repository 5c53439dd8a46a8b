"""A node's metrics say what happened, under the driver's name, and cost nothing while nobody asks."""

import importlib.metadata
import io
import itertools
import json
import math
import re
from collections.abc import Iterable

from drakit.core import advanced
from drakit.node import metrics
from drakit.telemetry import logs


def test_claims_are_timed_by_verb_outcome_and_phase() -> None:
    counted = metrics.Metrics()
    driver = counted.of("gpu.drakit.dev")
    driver.observe_claim("prepare", ok=True, seconds=0.003)
    driver.observe_claim("prepare", ok=False, seconds=0.3)
    driver.observe_phase("fetch", ok=True, seconds=0.002)
    driver.observe_phase("fetch", ok=False, seconds=0.5)
    text = counted.text().decode()
    assert 'drakit_claim_seconds_count{driver="gpu.drakit.dev",outcome="ok",verb="prepare"} 1.0' in text
    assert 'drakit_claim_seconds_bucket{driver="gpu.drakit.dev",le="0.0025",outcome="ok",verb="prepare"} 0.0' in text
    assert 'drakit_claim_seconds_bucket{driver="gpu.drakit.dev",le="0.005",outcome="ok",verb="prepare"} 1.0' in text
    assert 'drakit_claim_seconds_sum{driver="gpu.drakit.dev",outcome="error",verb="prepare"} 0.3' in text
    assert 'drakit_claim_phase_seconds_count{driver="gpu.drakit.dev",outcome="ok",phase="fetch"} 1.0' in text
    assert 'drakit_claim_phase_seconds_sum{driver="gpu.drakit.dev",outcome="error",phase="fetch"} 0.5' in text


def test_two_drivers_share_a_gauge_and_one_that_fails_hides_only_itself() -> None:
    counted = metrics.Metrics()

    def broken() -> Iterable[metrics.Reading]:
        raise OSError("gone")

    counted.of("a.example.com").gauge("claims", "Claims by state.", ("state",), lambda: [({"state": "prepared"}, 2)])
    counted.of("b.example.com").gauge("claims", "Claims by state.", ("state",), broken)
    counted.of("b.example.com").gauge("devices", "Devices offered.", (), lambda: [({}, 7)])
    text = counted.text().decode()
    assert 'drakit_claims{driver="a.example.com",state="prepared"} 2.0' in text
    assert "# HELP drakit_claims Claims by state." in text
    assert 'drakit_devices{driver="b.example.com"} 7.0' in text
    assert 'drakit_claims{driver="b.example.com"' not in text


def test_gauges_are_read_only_when_asked_for() -> None:
    counted = metrics.Metrics()
    asked: list[int] = []

    def read() -> Iterable[metrics.Reading]:
        asked.append(1)
        return []

    counted.of("a.example.com").gauge("claims", "Claims.", (), read)
    assert asked == []
    counted.text()
    assert asked == [1]


def test_publishing_is_counted() -> None:
    counted = metrics.Metrics()
    driver = counted.of("a.example.com")
    driver.published(3)
    driver.failed_to_publish()
    driver.watch_restarted()
    text = counted.text().decode()
    assert 'drakit_slice_writes_total{driver="a.example.com"} 3.0' in text
    assert 'drakit_publish_failures_total{driver="a.example.com"} 1.0' in text
    assert 'drakit_watch_restarts_total{driver="a.example.com"} 1.0' in text


def test_metrics_of_a_driver_have_its_name_as_prefix() -> None:
    counted = metrics.Metrics()

    def broken() -> list[advanced.Metric]:
        raise OSError("gone")

    def read() -> list[advanced.Metric]:
        return [
            advanced.Metric(name="share_bytes", documentation="Bytes sent.", value=7, labels={"share": "a"}, total=True),
            advanced.Metric(name="share_bytes", documentation="Bytes sent.", value=8, labels={"share": "b"}, total=True),
            advanced.Metric(name="links", documentation="Links.", value=2),
        ]

    counted.of("b.example.com").measure(broken)
    counted.of("a.example.com").measure(read)
    text = counted.text().decode()
    assert 'drakit_share_bytes_total{driver="a.example.com",share="a"} 7.0' in text
    assert 'drakit_share_bytes_total{driver="a.example.com",share="b"} 8.0' in text
    assert text.count("# TYPE drakit_share_bytes_total counter") == 1
    assert 'drakit_links{driver="a.example.com"} 2.0' in text


def test_events_that_never_happened_are_reported_as_zero() -> None:
    counted = metrics.Metrics()
    counted.of("a.example.com")
    text = counted.text().decode()
    for name in ("slice_writes", "publish_failures", "watch_restarts"):
        assert f'drakit_{name}_total{{driver="a.example.com"}} 0.0' in text
    for verb, outcome in itertools.product(("prepare", "unprepare"), ("ok", "error")):
        assert f'drakit_claim_seconds_count{{driver="a.example.com",outcome="{outcome}",verb="{verb}"}} 0.0' in text


def test_no_metric_says_when_a_count_began() -> None:
    counted = metrics.Metrics()
    driver = counted.of("a.example.com")
    driver.published(1)
    driver.observe_claim("prepare", ok=True, seconds=0.1)
    assert "_created" not in counted.text().decode()


def test_the_build_is_reported() -> None:
    version = importlib.metadata.version("drakit")
    assert re.search(
        rf'^drakit_build_info{{python="3[^"]*",version="{re.escape(version)}"}} 1.0$', metrics.Metrics().text().decode(), re.MULTILINE
    )


def test_a_driver_exports_a_histogram_of_its_own() -> None:
    counted = metrics.Metrics()
    reading = advanced.Metric(
        name="lift_seconds", documentation="Lifts.", value=2.5, labels={"floor": "1"}, buckets=((0.5, 1), (math.inf, 3))
    )
    counted.of("a.example.com").measure(lambda: [reading])
    text = counted.text().decode()
    assert "# TYPE drakit_lift_seconds histogram" in text
    for end, labels, value in (
        ("bucket", ',floor="1",le="0.5"', "1.0"),
        ("bucket", ',floor="1",le="+Inf"', "3.0"),
        ("count", ',floor="1"', "3.0"),
        ("sum", ',floor="1"', "2.5"),
    ):
        assert f'drakit_lift_seconds_{end}{{driver="a.example.com"{labels}}} {value}' in text


def test_a_gauge_that_fails_is_logged_when_its_error_is_new() -> None:
    made, written = metrics.Metrics(), io.StringIO()
    logs.setup(stream=written)
    answers: list[object] = [OSError("gone"), OSError("gone"), 1.0, OSError("gone"), ValueError("bad")]

    def read() -> list[metrics.Reading]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [({}, 1.0)]

    made.gauge("drakit_flaky", "Sometimes fails.", (), read)
    for _ in range(5):
        made.text()
    logs.setup(level=logs.Level.WARNING)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [(line["event"], line["metric"], line["error"]) for line in lines] == [
        ("reading metric failed", "drakit_flaky", error) for error in ("OSError: gone", "OSError: gone", "ValueError: bad")
    ]


def test_readings_without_their_label_hide_only_themselves() -> None:
    made = metrics.Metrics()
    made.gauge("drakit_bad", "Lacks its label.", ("gpu",), lambda: [({"nic": "a"}, 1.0)])
    made.gauge("drakit_good", "Has its label.", ("gpu",), lambda: [({"gpu": "a"}, 1.0)])
    assert b'drakit_good{gpu="a"} 1.0' in made.text()
