"""What waits to be told: coalesced by key, tried again with back-off, bounded, and never a reason to stop."""

import json
import threading

import pytest

from drakit.core import errors
from drakit.node import retry_queue
from drakit.telemetry import logs
from fakes import manual_clock


class Post:
    """Takes what is sent; ``answers`` are raised by the next sendings, None for a success. The loop ends after so many ``attempts``."""

    def __init__(self, *answers: Exception | None, last: int = 40, limit: int = retry_queue.KEYS_MAX, attempts: int = 100_000) -> None:
        self.answers = list(answers)
        self.clock = manual_clock.ManualClock(last=last)
        self.stop = threading.Event()
        self.attempts = attempts
        self.sent: list[tuple[float, str, str]] = []
        self.box: retry_queue.RetryQueue[str, str] = retry_queue.RetryQueue(
            "test", self.take, lambda old, new: old + new, self.clock, limit=limit
        )

    def take(self, key: str, load: str) -> None:
        self.sent.append((self.clock.moment, key, load))
        answer = self.answers.pop(0) if self.answers else None
        if (len(self.box) == 0 and answer is None) or len(self.sent) == self.attempts:
            self.stop.set()
        if answer is not None:
            raise answer

    def run(self) -> list[tuple[float, str, str]]:
        self.box.run(self.stop)
        return self.sent


def api(status: int) -> errors.ApiError:
    return errors.ApiError(f"answered {status}", status=status)


def test_updates_of_one_key_are_merged_while_they_wait() -> None:
    post = Post()
    for key, load in (("a", "1"), ("b", "x"), ("a", "2"), ("a", "3")):
        post.box.put(key, load)
    assert post.run() == [(0.0, "a", "123"), (0.0, "b", "x")]


def test_an_unreachable_server_is_retried_with_growing_pauses() -> None:
    post = Post(*(api(status) for status in (0, 503, 429, 409, 401)))
    post.box.put("a", "1")
    assert [moment for moment, _, _ in post.run()] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert len(post.box) == 0


def test_an_update_joins_the_waiting_entry_and_does_not_shorten_its_pause() -> None:
    post = Post(api(500))
    original = post.take

    def take(key: str, load: str) -> None:
        if not post.sent:
            post.box.put("a", "2")
        original(key, load)

    post.box._send = take
    post.box.put("a", "1")
    assert post.run() == [(0.0, "a", "1"), (1.0, "a", "12")]


def test_a_refused_entry_waits_long_and_blocks_no_other() -> None:
    post = Post(api(403), None)
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert post.run()[:2] == [(0.0, "a", "1"), (0.0, "b", "2")]
    assert post.sent[2:] == [(retry_queue.REFUSED_PAUSE, "a", "1")]


def test_an_entry_refused_as_invalid_for_a_while_is_sent_in_the_end() -> None:
    post = Post(api(422), api(400), None)
    post.box.put("a", "1")
    assert post.run() == [(0.0, "a", "1"), (1.0, "a", "1"), (3.0, "a", "1")]


def test_an_entry_always_refused_as_invalid_is_dropped() -> None:
    post = Post(api(422), None, *[api(422)] * (retry_queue.ATTEMPTS_MAX - 1), None)
    original = post.take

    def take(key: str, load: str) -> None:
        if len(post.sent) == retry_queue.ATTEMPTS_MAX:
            post.box.put("c", "3")
        original(key, load)

    post.box._send = take
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a", "b", *"a" * (retry_queue.ATTEMPTS_MAX - 1), "c"]
    assert len(post.box) == 0


def test_an_update_made_during_the_last_failing_try_is_sent() -> None:
    post = Post(*[api(422)] * retry_queue.ATTEMPTS_MAX, None)
    original = post.take

    def take(key: str, load: str) -> None:
        if len(post.sent) == retry_queue.ATTEMPTS_MAX - 1:
            post.box.put("a", "2")
        original(key, load)

    post.box._send = take
    post.box.put("a", "1")
    assert [load for _, _, load in post.run()] == ["1"] * retry_queue.ATTEMPTS_MAX + ["2"]


def test_an_entry_for_a_deleted_object_is_dropped() -> None:
    for answer in (errors.ClaimError(errors.ClaimFault.NOT_FOUND, "gone"), ValueError("bug")):
        post = Post(answer, None)
        post.box.put("a", "1")
        post.box.put("b", "2")
        assert [(key, load) for _, key, load in post.run()] == [("a", "1"), ("b", "2")]


def test_a_full_queue_drops_its_oldest_entry() -> None:
    post = Post(limit=3)
    for key in "abcde":
        post.box.put(key, "1")
    assert [key for _, key, _ in post.run()] == ["c", "d", "e"]


def test_an_invalid_entry_at_the_end_stops_no_other() -> None:
    post = Post(api(422), None)
    post.stop.set()
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a", "b"]


def test_at_the_end_waiting_entries_are_tried_until_the_first_failure() -> None:
    post = Post(api(500), None)
    post.stop.set()
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a"]


@pytest.mark.parametrize("status, reason", [(403, "Forbidden"), (422, "Forbidden")])
def test_a_missing_right_is_one_line_with_the_status_for_a_thousand_claims(
    status: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.setup()
    refusals = [errors.ApiError(f"answered {status}: claim c{number} is forbidden", status=status, reason=reason) for number in range(1000)]
    post = Post(*refusals, attempts=1000)
    for number in range(1000):
        post.box.put(f"c{number}", "1")
    post.run()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"], line["status"]) for line in lines] == [("API server forbids the update", "error", status)]


def test_the_next_line_of_a_kind_has_the_count_of_the_suppressed(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup()
    post = Post(*(errors.ApiError(f"no right for {number}", status=403) for number in range(4)), attempts=4)
    for key in "abc":
        post.box.put(key, "1")
    post.run()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["key"], line.get("suppressed")) for line in lines] == [("a", None), ("a", 2)]


@pytest.mark.parametrize("status", [0, 422, 503])
def test_entries_that_all_fail_alike_do_not_flood_the_log(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup()
    post = Post(*(errors.ApiError(f"claim {number} fails", status=status) for number in range(500)), attempts=500)
    for number in range(500):
        post.box.put(f"c{number}", "1")
    post.run()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_entries_that_a_full_queue_drops_do_not_flood_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup()
    post = Post(limit=3)
    for number in range(500):
        post.box.put(f"c{number}", "1")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_entry_that_can_never_be_sent_is_dropped_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup()
    post = Post(errors.ConfigError("must be a list, not 7", field="status.reservedFor"), None)
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a", "b"]
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["error"], "exception" in line) == ("error", "status.reservedFor: must be a list, not 7", False)


def test_a_new_key_waits_for_more_values_and_is_sent_once() -> None:
    post = Post()
    post.box = retry_queue.RetryQueue("test", post.take, lambda old, new: old + new, post.clock, delay=0.2)
    post.box.put("a", "1")
    post.clock.moment = 0.1
    post.box.put("a", "2")
    assert [(round(moment, 3), load) for moment, _, load in post.run()] == [(0.2, "12")]
