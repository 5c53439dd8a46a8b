"""When a schedule of five fields comes due, in a time zone, and which texts are none."""

import datetime

import pytest

from drakit_cluster.objects import cron

NOW = "2026-03-10T12:34:56+00:00"
"""A Tuesday."""


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def following(text: str, after: str = NOW, zone: str = "") -> str:
    found = cron.read(text, zone).following(at(after))
    return found.astimezone(datetime.UTC).isoformat() if found else ""


@pytest.mark.parametrize(
    "text, expected",
    [
        ("* * * * *", "2026-03-10T12:35:00+00:00"),
        ("*/15 * * * *", "2026-03-10T12:45:00+00:00"),
        ("50/5 * * * *", "2026-03-10T12:50:00+00:00"),
        ("0 9-17/4 * * *", "2026-03-10T13:00:00+00:00"),
        ("5,34 12 * * *", "2026-03-11T12:05:00+00:00"),
        ("0 0 1 jan ?", "2027-01-01T00:00:00+00:00"),
        ("0 0 * * MON-wed", "2026-03-11T00:00:00+00:00"),
        ("0 0 13 * fri", "2026-03-13T00:00:00+00:00"),
        ("0 0 20 * thu", "2026-03-12T00:00:00+00:00"),
        ("0 0 */2 * thu", "2026-03-11T00:00:00+00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00+00:00"),
        ("0 0 30 2 *", ""),
        ("@hourly", "2026-03-10T13:00:00+00:00"),
        ("@weekly", "2026-03-15T00:00:00+00:00"),
        ("@every 1h30m", "2026-03-10T14:04:56+00:00"),
        ("@every 1.5h", "2026-03-10T14:04:56+00:00"),
        ("@every 30s1m", "2026-03-10T12:36:26+00:00"),
        ("@every 90500ms", "2026-03-10T12:36:26+00:00"),
        ("@every 500ms", "2026-03-10T12:34:57+00:00"),
        ("@every -1h", "2026-03-10T12:34:57+00:00"),
    ],
)
def test_the_next_time_of_a_schedule(text: str, expected: str) -> None:
    assert following(text) == expected


@pytest.mark.parametrize(
    "after, expected",
    [
        ("2026-03-10T12:00:00+00:00", "2026-03-11T01:30:00+00:00"),
        ("2026-03-28T12:00:00+00:00", "2026-03-30T00:30:00+00:00"),
        ("2026-10-25T00:00:00+00:00", "2026-10-25T00:30:00+00:00"),
        ("2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"),
    ],
)
def test_a_schedule_follows_the_clock_of_its_time_zone(after: str, expected: str) -> None:
    """At half past two in Berlin, which the change in March leaves out and the one in October repeats."""
    assert following("30 2 * * *", after, "Europe/Berlin") == expected


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("* * * * *", "2020-01-01T00:00:00+00:00", "2026-03-10T12:34:00+00:00"),
        ("0 0 1 1 *", "2024-06-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
        ("0 0 1 1 *", "2026-01-01T00:00:00+00:00", ""),
        ("@every 10m", "2026-03-10T12:00:00+00:00", "2026-03-10T12:30:00+00:00"),
        ("@every 10m", "2026-03-10T12:30:00+00:00", ""),
    ],
)
def test_the_latest_time_that_has_passed(text: str, after: str, expected: str) -> None:
    found = cron.read(text).latest(at(after), at(NOW))
    assert (found.isoformat() if found else "") == expected


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "expected exactly 5 fields, found 0"),
        ("0 0 * *", "expected exactly 5 fields, found 4"),
        ("60 * * * *", "60 is not a range of minute, 0 to 59"),
        ("* * 0 * *", "0 is not a range of day of month, 1 to 31"),
        ("5-1 * * * *", "5-1 is not a range of minute"),
        ("*/0 * * * *", "is not a range of minute"),
        ("* * * * 7", "7 is not a range of day of week, 0 to 6"),
        ("* * * foo *", "failed to parse foo as month"),
        ("1,,2 * * * *", "as minute"),
        ("@reboot", "expected exactly 5 fields"),
        ("@every soon", 'failed to parse duration soon: time: invalid duration "soon"'),
        ("@every 1", "failed to parse duration 1"),
        ("@every 9999999h", "longer than 292 years"),
    ],
)
def test_a_text_that_is_no_schedule_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cron.read(text)


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../etc/passwd", "Europe"])
def test_a_time_zone_that_the_host_does_not_know_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        cron.read("* * * * *", zone)
