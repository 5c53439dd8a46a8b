"""What the board says of devices, and when watchers are woken."""

import datetime
import threading
from collections.abc import Callable

import pytest

from drakit.core import context, errors
from drakit.kubelet import health

POOL = "node-1"
HEALTHY, UNHEALTHY, UNKNOWN = context.Health.HEALTHY, context.Health.UNHEALTHY, context.Health.UNKNOWN


class StoppedClock:
    """A clock that a test moves; a wait returns at once and is remembered."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.waits: list[float] = []

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.seconds, datetime.UTC)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        return event.is_set()


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def board(clock: StoppedClock) -> health.HealthBoard:
    return health.HealthBoard(POOL, clock, stale_seconds=300)


def states(board: health.HealthBoard) -> dict[str, context.Health]:
    return {one.device: one.health for one in board.snapshot()}


def test_a_discovered_device_without_a_report_is_healthy(board: health.HealthBoard) -> None:
    assert states(board) == {}
    board.discovered(dict.fromkeys(["b", "a"], POOL))
    assert list(states(board).items()) == [("a", HEALTHY), ("b", HEALTHY)]
    board.discovered(dict.fromkeys(["b"], POOL))
    assert states(board) == {"b": HEALTHY}


def test_a_health_report_holds_until_the_next_one(board: health.HealthBoard, clock: StoppedClock) -> None:
    board.discovered(dict.fromkeys(["a"], POOL))
    board.report("a", UNHEALTHY, "too hot")
    clock.seconds += 1000
    board.discovered(dict.fromkeys(["a"], POOL))
    assert board.snapshot() == [health.DeviceHealth(device="a", pool=POOL, health=UNHEALTHY, message="too hot", updated_at=1000)]
    board.report("a", HEALTHY)
    assert board.snapshot() == [health.DeviceHealth(device="a", pool=POOL, health=HEALTHY, message="", updated_at=2000)]


def test_a_reported_device_that_is_gone_is_still_reported(board: health.HealthBoard) -> None:
    board.discovered(dict.fromkeys(["a"], POOL))
    board.report("a", UNHEALTHY, "fell off the bus")
    board.discovered({})
    assert states(board) == {"a": UNHEALTHY}


def test_health_is_unknown_when_discovery_is_stale(board: health.HealthBoard, clock: StoppedClock) -> None:
    board.discovered(dict.fromkeys(["a", "b"], POOL))
    board.report("b", UNHEALTHY)
    clock.seconds += 301
    assert [(one.device, one.health, one.message) for one in board.snapshot()] == [
        ("a", UNKNOWN, health.STALE_MESSAGE),
        ("b", UNHEALTHY, ""),
    ]
    assert board.counts() == {UNKNOWN: 1, HEALTHY: 0, UNHEALTHY: 1}
    board.discovered(dict.fromkeys(["a", "b"], POOL))
    assert states(board)["a"] is HEALTHY


def test_watchers_are_woken_by_changes_alone(board: health.HealthBoard, clock: StoppedClock) -> None:
    changes: list[tuple[Callable[[], None], bool]] = [
        (lambda: board.discovered(dict.fromkeys(["a"], POOL)), True),
        (lambda: board.discovered(dict.fromkeys(["a"], POOL)), False),
        (lambda: board.report("a", UNHEALTHY, "x"), True),
        (lambda: board.report("a", UNHEALTHY, "x"), False),
        (lambda: board.report("a", UNHEALTHY, "y"), True),
        (board.close, True),
    ]
    with board.watcher() as wake:
        for change, woken in changes:
            wake.clear()
            change()
            assert wake.is_set() is woken


def test_discovery_that_answers_again_is_a_change(board: health.HealthBoard, clock: StoppedClock) -> None:
    board.discovered(dict.fromkeys(["a"], POOL))
    clock.seconds += 301
    with board.watcher() as wake:
        board.discovered(dict.fromkeys(["a"], POOL))
        assert wake.is_set()


def test_a_watcher_gets_all_at_once_and_again_before_the_kubelet_forgets(board: health.HealthBoard, clock: StoppedClock) -> None:
    board.discovered(dict.fromkeys(["a"], POOL))
    with board.watcher() as wake:
        snapshots = board.follow(wake)
        assert [one.device for one in next(snapshots)] == ["a"]
        assert clock.waits == []
        next(snapshots)
        assert clock.waits == [health.RESEND_SECONDS]
        assert health.RESEND_SECONDS < health.VALID_SECONDS / 2
        board.close()
        assert list(snapshots) == []


def test_watchers_beyond_the_thread_limit_are_refused(board: health.HealthBoard) -> None:
    opened = [board.watcher() for _ in range(health.WATCHERS_MAX)]
    for one in opened:
        one.__enter__()
    with pytest.raises(errors.RetryError, match="8 health streams are open already"), board.watcher():
        pass
    opened[0].__exit__(None, None, None)
    with board.watcher():
        pass


@pytest.mark.parametrize(
    "message, kept",
    [
        ("", ""),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "..."),
        ("é" * 600, "é" * 510 + "..."),
        ("\udcff", "?"),
    ],
)
def test_messages_are_cut_as_the_kubelet_would(message: str, kept: str) -> None:
    assert health.truncated(message) == kept
    assert len(kept.encode()) <= 1024
