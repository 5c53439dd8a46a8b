import collections.abc
import io
import json
import logging
import threading

import pytest
import structlog

from drakit.telemetry import logs

log = logs.get_logger("drakit.made.before.setup")


@pytest.fixture
def stream() -> collections.abc.Iterator[io.StringIO]:
    stream = io.StringIO()
    yield stream
    logs.setup(level=logs.Level.WARNING, style=logs.Style.CONSOLE)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_message_fields_level_time_and_logger(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    log.info("claim prepared", devices=2)
    (line,) = lines(stream)
    assert {"event": "claim prepared", "devices": 2, "level": "info", "logger": "drakit.made.before.setup"}.items() <= line.items()
    assert str(line["timestamp"]).endswith("Z")


def test_lines_below_the_level_are_not_written(stream: io.StringIO) -> None:
    logs.setup(level=logs.Level.WARNING, stream=stream)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line["event"] for line in lines(stream)] == ["c", "d"]


def test_bound_fields_reach_every_line_of_the_block_and_of_this_thread_only(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    with (
        logs.bound(request_id=7),
        logs.bound(claim="ns/c", claim_uid="u"),
        logs.bound(pool="p", device="d", share_id="s"),
    ):
        log.info("inside")
        other = threading.Thread(target=log.info, args=("elsewhere",))
        other.start()
        other.join()
    log.info("after")
    inside, elsewhere, after = lines(stream)
    assert {"request_id": 7, "claim": "ns/c", "claim_uid": "u", "pool": "p", "device": "d", "share_id": "s"}.items() <= inside.items()
    assert "request_id" not in elsewhere
    assert "request_id" not in after


def test_an_exception_is_logged_with_its_trace(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    try:
        int("broken")
    except ValueError:
        log.exception("failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "ValueError: invalid literal" in str(line["exception"])


def test_values_that_json_cannot_express_are_written_as_text(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    log.info("odd", value=object)
    assert "object" in str(lines(stream)[0]["value"])


def test_the_console_style_is_readable_and_has_no_colours_in_a_file(stream: io.StringIO) -> None:
    logs.setup(style=logs.Style.CONSOLE, stream=stream)
    log.warning("disk nearly full", free="1Gi")
    assert "disk nearly full" in stream.getvalue()
    assert "free=1Gi" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_warnings_of_libraries_are_logged_once_in_the_same_format(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    logs.setup(stream=stream)
    logging.getLogger("library").warning("retrying %s", "x")
    logging.getLogger("library").info("not shown")
    assert [(line["logger"], line["event"], line["level"]) for line in lines(stream)] == [("library", "retrying x", "warning")]


def test_a_closed_stream_loses_the_line_and_nothing_else(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    stream.close()
    log.info("nobody hears")


def test_loggers_of_structlog_itself_come_out_the_same_way(stream: io.StringIO) -> None:
    direct = structlog.get_logger("drakit.direct")
    logs.setup(stream=stream)
    direct.info("hello", n=1)
    assert [(line["logger"], line["event"], line["n"]) for line in lines(stream)] == [("drakit.direct", "hello", 1)]


LONG = "x" * 3_900_000


@pytest.mark.parametrize("style", list(logs.Style))
@pytest.mark.parametrize(
    "value",
    [
        LONG,
        [LONG] * 3,
        {LONG: LONG},
        {"a": {"b": [LONG, (LONG,)]}},
        ["claim"] * 100_000,
        {str(number): number for number in range(100_000)},
        frozenset(range(100_000)),
        10**5000,
        b"x" * 3_900_000,
        ValueError(LONG),
        [[LONG] * 50] * 50,
    ],
    ids=range(11),
)
def test_no_value_makes_a_long_line_and_the_cut_is_marked(style: logs.Style, value: object, stream: io.StringIO) -> None:
    logs.setup(style=style, stream=stream)
    log.warning("claim refused", value=value)
    logging.getLogger("drakit.family").warning("claim refused", extra={"value": value})
    for line in stream.getvalue().splitlines():
        assert len(line) < 40_000
        assert " cut]" in line
    assert len(stream.getvalue().splitlines()) == 2


def test_a_long_message_and_a_long_traceback_keep_their_ends(stream: io.StringIO) -> None:
    logs.setup(stream=stream)
    log.error("claim engine failed", exc_info=ValueError(f"{LONG} is wrong"))
    logging.getLogger("drakit.family").warning("%s at the end", LONG)
    failed, family = lines(stream)
    assert str(failed["exception"]).startswith("ValueError")
    assert str(failed["exception"]).endswith("is wrong")
    assert str(family["event"]).endswith("at the end")
    assert len(stream.getvalue()) < 100_000
