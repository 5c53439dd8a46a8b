"""The watch through everything a server does to it, on a scripted connection and a clock that only counts."""

import collections.abc
import datetime
import threading

import pytest

from drakit.core import backoff, errors, records
from drakit.kube import api_objects, watch
from fakes import fake_transport

Event = collections.abc.Mapping[str, records.Json]
ADDED: Event = {"type": "ADDED", "object": {}}
BOOKMARK: Event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
GONE: Event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}}
INTERNAL: Event = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd was restored"}}
BROKEN = errors.ApiError("no answer from the API server: connection reset")
REFUSED = errors.ApiError("the API server answered 429: slow down", status=429)


class CountingClock:
    """Remembers how long it was asked to wait; time passes only by ``lasting``, once per look at the clock."""

    def __init__(self, lasting: float = 0) -> None:
        self.pauses: list[float] = []
        self._lasting = lasting
        self._time = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(tz=datetime.UTC)

    def monotonic(self) -> float:
        self._time += self._lasting
        return self._time

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        return event.is_set()


class ScriptedStream:
    def __init__(self, events: collections.abc.Iterable[Event | errors.ApiError]) -> None:
        self._events = events
        self.closed = False

    def __iter__(self) -> collections.abc.Iterator[Event]:
        for event in self._events:
            if isinstance(event, errors.ApiError):
                raise event
            yield event

    def close(self) -> None:
        self.closed = True


class ScriptedApi(fake_transport.FakeTransport):
    """One watch, or one refusal, for each entry of the script; when it is used up, ``stop`` is set."""

    def __init__(self, stop: threading.Event, *script: collections.abc.Sequence[Event | errors.ApiError] | errors.ApiError) -> None:
        super().__init__(self._listed, self._watched)
        self._stop = stop
        self._script = list(script)
        self.queries: list[collections.abc.Mapping[str, str]] = []
        self.streams: list[ScriptedStream] = []

    def _listed(self, _: fake_transport.Request) -> fake_transport.Answer:
        if not self._script:
            self._stop.set()
            return BROKEN
        if isinstance(self._script[0], errors.ApiError):
            return self._script.pop(0)  # type: ignore[return-value] # the line above says what it is
        return {"metadata": {"resourceVersion": str(100 + len(self.streams))}, "items": []}

    def _watched(self, _: str, query: collections.abc.Mapping[str, str]) -> ScriptedStream:
        if not self._script:
            self._stop.set()
            raise BROKEN
        events = self._script.pop(0)
        if isinstance(events, errors.ApiError):
            raise events
        self.queries.append(query)
        self.streams.append(ScriptedStream(events))
        return self.streams[-1]

    def version(self) -> str:
        """The version of a list, as the reader of the changes makes one."""
        return api_objects.metadata_text(self.request("GET", "/slices"), "resourceVersion")

    @property
    def has_more(self) -> bool:
        return bool(self._script)


def changes(api: "ScriptedApi", clock: CountingClock, stop: threading.Event) -> collections.abc.Iterator[watch.ObservedObject | None]:
    return watch.changes(api, "/slices", selector="a=b", version=api.version, clock=clock, stop=stop)


def run(clock: CountingClock, *script: collections.abc.Sequence[Event | errors.ApiError] | errors.ApiError) -> tuple[int, ScriptedApi]:
    """Number of yields until the script is used up."""
    stop = threading.Event()
    api = ScriptedApi(stop, *script)
    return sum(1 for _ in changes(api, clock, stop)), api


def test_one_notice_for_the_connection_and_one_for_each_change() -> None:
    clock = CountingClock()
    yields, api = run(clock, [ADDED, BOOKMARK, ADDED])
    assert yields == 3
    assert api.queries[0] == {
        "fieldSelector": "a=b",
        "watch": "true",
        "resourceVersion": "100",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": api.queries[0]["timeoutSeconds"],
    }
    assert abs(int(api.queries[0]["timeoutSeconds"]) - watch.SERVER_SECONDS) <= backoff.JITTER * watch.SERVER_SECONDS


@pytest.mark.parametrize("end", [[], [BROKEN]], ids=["time limit", "disconnect"])
def test_a_watch_goes_on_where_the_last_one_ended_without_a_list(end: list[Event | errors.ApiError]) -> None:
    yields, api = run(CountingClock(), [ADDED, BOOKMARK, *end], [ADDED])
    assert yields == 3, "nothing can have been missed, so there is no notice of a new connection"
    assert [query["resourceVersion"] for query in api.queries] == ["100", "9"]
    assert all(stream.closed for stream in api.streams)


@pytest.mark.parametrize("end", [GONE, INTERNAL], ids=["history gone", "another error of the server"])
def test_an_error_event_is_followed_by_a_list_and_a_watch_from_its_version(end: Event) -> None:
    yields, api = run(CountingClock(), [ADDED, end], [ADDED])
    assert yields == 4
    assert [query["resourceVersion"] for query in api.queries] == ["100", "101"]


def test_failures_in_a_row_are_answered_with_growing_pauses_up_to_a_limit() -> None:
    clock = CountingClock()
    run(clock, *[REFUSED] * 12)
    assert all(0.79 <= pause / min(watch.FIRST_PAUSE * 2**index, watch.LONGEST_PAUSE) <= 1.21 for index, pause in enumerate(clock.pauses))


def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    clock = CountingClock()
    run(clock, *[[]] * 6)
    assert len(clock.pauses) >= 6
    assert clock.pauses[5] > 10 * clock.pauses[0]


def test_a_watch_that_lasted_is_restarted_within_a_second_at_random() -> None:
    clock = CountingClock(lasting=watch.STEADY_SECONDS)
    yields, _ = run(clock, *[[ADDED]] * 20)
    assert yields == 21
    assert all(0 <= pause <= watch.RECONNECT_SECONDS for pause in clock.pauses)
    assert len(set(clock.pauses)) > 10


def test_an_answer_that_makes_no_sense_is_survived() -> None:
    nonsense: Event = {"type": "ERROR", "object": "?"}
    yields, _ = run(CountingClock(), [nonsense], [ADDED])
    assert yields == 3


def test_a_stop_during_a_change_ends_the_watch_and_closes_its_stream() -> None:
    stop = threading.Event()
    api = ScriptedApi(stop, [ADDED, ADDED, ADDED])
    seen = 0
    for _ in changes(api, CountingClock(), stop):
        seen += 1
        if seen == 2:
            stop.set()
    assert seen == 2
    assert api.streams[0].closed


def test_a_watch_that_is_dropped_closes_its_stream() -> None:
    stop = threading.Event()
    api = ScriptedApi(stop, [ADDED, ADDED, ADDED])
    following = changes(api, CountingClock(), stop)
    assert [next(following) is None, next(following) is None] == [True, False]
    del following
    assert api.streams[0].closed


def changed(version: str, name: str, kind: str = "MODIFIED") -> Event:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}


def follow(*script: collections.abc.Sequence[Event | errors.ApiError] | errors.ApiError) -> tuple[list[str], ScriptedApi]:
    """What is yielded until the script is used up: the object's name, with a cross where it is gone, or a dash for None."""
    stop = threading.Event()
    api = ScriptedApi(stop, *script)
    reported = []
    for seen in watch.objects(api, "/claims", clock=CountingClock(), stop=stop):
        reported.append("-" if seen is None else f"{api_objects.metadata_text(seen.object, 'name')}{'x' if seen.is_deleted else ''}")
        if not api.has_more:
            stop.set()
    return reported, api


def test_objects_are_followed_from_where_the_last_watch_ended() -> None:
    reported, api = follow([changed("101", "a", "ADDED"), BOOKMARK], [changed("12", "b", "DELETED")])
    assert reported == ["-", "a", "bx"]
    assert [query["resourceVersion"] for query in api.queries] == ["100", "9"]


def test_a_history_that_is_gone_is_listed_anew() -> None:
    reported, api = follow([changed("101", "a"), GONE], [changed("12", "b")])
    assert reported == ["-", "a", "-", "b"]
    assert [query["resourceVersion"] for query in api.queries] == ["100", "101"]


def test_a_broken_connection_goes_on_where_it_was() -> None:
    reported, api = follow([changed("101", "a"), BROKEN], [changed("102", "b")])
    assert reported == ["-", "a", "b"]
    assert [query["resourceVersion"] for query in api.queries] == ["100", "101"]
