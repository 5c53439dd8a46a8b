"""What waits to be told: coalesced by key, tried again with back-off, bounded, and never a reason to stop."""

import threading

from drakit.core import errors
from drakit.node import device_status
from fakes import manual_clock


class Post:
    """Takes what is sent; ``answers`` are raised by the next sendings, None for a success."""

    def __init__(self, *answers: Exception | None, last: int = 40, limit: int = device_status.KEYS_MAX) -> None:
        self.answers = list(answers)
        self.clock = manual_clock.ManualClock(last=last)
        self.stop = threading.Event()
        self.sent: list[tuple[float, str, str]] = []
        self.box: device_status.RetryQueue[str, str] = device_status.RetryQueue(
            "test", self.take, lambda old, new: old + new, self.clock, limit=limit
        )

    def take(self, key: str, load: str) -> None:
        self.sent.append((self.clock.moment, key, load))
        answer = self.answers.pop(0) if self.answers else None
        if len(self.box) == 0 and answer is None:
            self.stop.set()
        if answer is not None:
            raise answer

    def run(self) -> list[tuple[float, str, str]]:
        self.box.run(self.stop)
        return self.sent


def api(status: int) -> errors.ApiError:
    return errors.ApiError(f"answered {status}", status=status)


def test_what_is_put_for_one_key_meanwhile_is_sent_as_one() -> None:
    post = Post()
    for key, load in (("a", "1"), ("b", "x"), ("a", "2"), ("a", "3")):
        post.box.put(key, load)
    assert post.run() == [(0.0, "a", "123"), (0.0, "b", "x")]


def test_a_server_that_is_away_is_asked_again_with_growing_pauses() -> None:
    post = Post(*(api(status) for status in (0, 503, 429, 409, 401)))
    post.box.put("a", "1")
    assert [moment for moment, _, _ in post.run()] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert len(post.box) == 0


def test_news_join_what_waits_for_its_next_try_and_do_not_hurry_it() -> None:
    post = Post(api(500))
    original = post.take

    def take(key: str, load: str) -> None:
        if not post.sent:
            post.box.put("a", "2")
        original(key, load)

    post.box._send = take
    post.box.put("a", "1")
    assert post.run() == [(0.0, "a", "1"), (1.0, "a", "12")]


def test_a_refusal_waits_long_and_holds_up_nobody() -> None:
    post = Post(api(403), None)
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert post.run()[:2] == [(0.0, "a", "1"), (0.0, "b", "2")]
    assert post.sent[2:] == [(device_status.REFUSED_PAUSE, "a", "1")]


def test_what_a_server_calls_wrong_for_a_moment_is_reported_in_the_end() -> None:
    post = Post(api(422), api(400), None)
    post.box.put("a", "1")
    assert post.run() == [(0.0, "a", "1"), (1.0, "a", "1"), (3.0, "a", "1")]


def test_what_a_server_goes_on_calling_wrong_is_dropped_and_holds_up_nobody() -> None:
    post = Post(api(422), None, *[api(422)] * (device_status.ATTEMPTS_MAX - 1), None)
    original = post.take

    def take(key: str, load: str) -> None:
        if len(post.sent) == device_status.ATTEMPTS_MAX:
            post.box.put("c", "3")
        original(key, load)

    post.box._send = take
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a", "b", *"a" * (device_status.ATTEMPTS_MAX - 1), "c"]
    assert len(post.box) == 0


def test_news_that_come_while_the_last_try_fails_are_sent() -> None:
    post = Post(*[api(422)] * device_status.ATTEMPTS_MAX, None)
    original = post.take

    def take(key: str, load: str) -> None:
        if len(post.sent) == device_status.ATTEMPTS_MAX - 1:
            post.box.put("a", "2")
        original(key, load)

    post.box._send = take
    post.box.put("a", "1")
    assert [load for _, _, load in post.run()] == ["1"] * device_status.ATTEMPTS_MAX + ["2"]


def test_what_nobody_can_receive_any_more_is_dropped() -> None:
    for answer in (errors.ClaimError(errors.ClaimFault.NOT_FOUND, "gone"), ValueError("bug")):
        post = Post(answer, None)
        post.box.put("a", "1")
        post.box.put("b", "2")
        assert [(key, load) for _, key, load in post.run()] == [("a", "1"), ("b", "2")]


def test_no_more_than_so_many_keys_wait_and_the_oldest_goes() -> None:
    post = Post(limit=3)
    for key in "abcde":
        post.box.put(key, "1")
    assert [key for _, key, _ in post.run()] == ["c", "d", "e"]


def test_what_is_called_wrong_at_the_end_keeps_nothing_else_from_being_sent() -> None:
    post = Post(api(422), None)
    post.stop.set()
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a", "b"]


def test_what_waits_at_the_end_is_tried_once_until_the_first_failure() -> None:
    post = Post(api(500), None)
    post.stop.set()
    post.box.put("a", "1")
    post.box.put("b", "2")
    assert [key for _, key, _ in post.run()] == ["a"]
