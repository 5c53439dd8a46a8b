"""Schedules of CronJobs: five fields or one of the short forms, as Kubernetes' library robfig/cron reads them, in a time zone.

In a day of a time change, an hour that is left out has no times, and one that is repeated has them twice.
"""

import datetime
import re
import zoneinfo
from dataclasses import dataclass

from drakit_cluster.objects import go_durations

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?P<first>[*?]|\w+)(-(?P<last>\w+))?(/(?P<step>[0-9]{1,4}))?")
_EVERY = "@every "
_NANOSECONDS_MAX = 2**63 - 1
_YEARS = 5
"""How far a time may be away, as in Kubernetes' library."""
_MINUTE, _HOUR = datetime.timedelta(minutes=1), datetime.timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class _Field:
    """The name of a field, its numbers, and the words that stand for them from the first on."""

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field(name="minute", low=0, high=59),
    _Field(name="hour", low=0, high=23),
    _Field(name="day of month", low=1, high=31),
    _Field(name="month", low=1, high=12, words=_MONTHS),
    _Field(name="day of week", low=0, high=6, words=_DAYS),
)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The minutes, hours, days and months that a schedule names. ``every`` replaces them by a fixed time between two runs."""

    numbers: tuple[frozenset[int], ...] = ()
    free_days: bool = True
    every: datetime.timedelta | None = None
    zone: datetime.tzinfo = datetime.UTC

    def following(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the first time after ``moment``; None if there is none for years."""
        if self.every is not None:
            return moment.replace(microsecond=0) + self.every
        time = moment.astimezone(datetime.UTC).replace(second=0, microsecond=0) + _MINUTE
        end = time.replace(year=time.year + _YEARS, day=min(time.day, 28))
        minutes, hours, *_ = self.numbers
        while time < end:
            local = time.astimezone(self.zone)
            if not self._has_day(local):
                midnight = (local + datetime.timedelta(days=1)).replace(hour=0, minute=0, fold=0)
                time = midnight.astimezone(datetime.UTC)
            elif local.hour not in hours:
                time += _HOUR - local.minute * _MINUTE
            elif local.minute not in minutes:
                time += _MINUTE
            else:
                return time
        return None

    def latest(self, after: datetime.datetime, until: datetime.datetime) -> datetime.datetime | None:
        """Return the last time after one moment and not after another; None without one."""
        if self.every is not None:
            runs = (until - after.replace(microsecond=0)) // self.every
            return after.replace(microsecond=0) + runs * self.every if runs > 0 else None
        window, found = _MINUTE, None
        while found is None:
            start = max(after, until - window)
            time = self.following(start)
            while time is not None and time <= until:
                found, time = time, self.following(time)
            if start == after:
                break
            window *= 4
        return found

    def _has_day(self, local: datetime.datetime) -> bool:
        """Return whether a day is named: by both fields, or by one of them if both say which days."""
        _, _, days, months, weekdays = self.numbers
        by_date, by_weekday = local.day in days, local.isoweekday() % 7 in weekdays
        return local.month in months and ((by_date and by_weekday) if self.free_days else (by_date or by_weekday))


def read(text: str, zone: str = "") -> Schedule:
    """Return the schedule that a text describes, in a time zone by its name; without one, in UTC. Raises ValueError with the reason."""
    times = zone_named(zone) if zone else datetime.UTC
    if text.startswith(_EVERY):
        return Schedule(every=_every(text.removeprefix(_EVERY)), zone=times)
    fields = _SHORT.get(text, text).split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {text}")
    numbers = tuple(_numbers(text, field) for text, field in zip(fields, _FIELDS, strict=True))
    return Schedule(numbers=numbers, free_days=any(_is_free(fields[place]) for place in (2, 4)), zone=times)


def _every(text: str) -> datetime.timedelta:
    """Return the whole seconds of a duration, at least one, as Kubernetes' library does."""
    try:
        nanoseconds = go_durations.nanoseconds(text)
    except ValueError as error:
        raise ValueError(f"failed to parse duration {text}: {error}") from error
    if abs(nanoseconds) > _NANOSECONDS_MAX:
        raise ValueError(f"failed to parse duration {text}: it is longer than 292 years")
    return datetime.timedelta(seconds=max(1, nanoseconds // go_durations.SECOND))


def zone_named(name: str) -> datetime.tzinfo:
    """Return a time zone. Raises ValueError for a name that this host does not know."""
    try:
        return datetime.UTC if name.upper() == "UTC" else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {name}") from error


def _is_free(text: str) -> bool:
    return any(part in ("*", "?", "*/1", "?/1") for part in text.split(","))


def _numbers(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"failed to parse {part} as {field.name}")
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        if first in "*?":
            low, high = field.low, field.high
        else:
            low = _number(first, field)
            high = _number(last, field) if last else field.high if match["step"] else low
        if not field.low <= low <= high <= field.high or not step:
            raise ValueError(f"{part} is not a range of {field.name}, {field.low} to {field.high}")
        found.update(range(low, high + 1, step))
    return frozenset(found)


def _number(text: str, field: _Field) -> int:
    if text.lower() in field.words:
        return field.low + field.words.index(text.lower())
    if not re.fullmatch("[0-9]{1,4}", text):
        raise ValueError(f"failed to parse {text} as {field.name}")
    return int(text)
