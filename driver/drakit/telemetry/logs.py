"""Structured logs: one constant message and key=value fields a line, as JSON or for a console, on standard error.

Every module takes its logger once, ``_log = logs.get_logger(__name__)``, before anything is set up; ``setup`` decides for all of them, also later,
what is shown and how. Fields bound by ``bound`` travel with the thread, so that a line written deep inside a call says whose call it was.
Until ``setup`` is called, warnings and worse are shown.

Device families and drivers' authors log with the standard library: ``_log.info("board opened", extra={"device": name})``. Such a record comes out
as one of our lines, with the keys of ``extra`` as fields. The loggers of drakit and of packages given to ``follow`` obey the level of ``setup``;
those of other libraries keep the level that they have, which is WARNING unless their user set another.
"""

import contextlib
import contextvars
import dataclasses
import datetime
import enum
import json
import logging
import os
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import structlog
from structlog import typing as structlog_typing

from drakit.telemetry import escaping, secrets

Logger = structlog.stdlib.BoundLogger


class Style(enum.Enum):
    """How a line is written."""

    JSON = "json"
    CONSOLE = "console"


class Level(enum.IntEnum):
    """The least severe level that is shown."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR
    NOTHING = logging.CRITICAL + 1


@dataclasses.dataclass(kw_only=True)
class _Output:
    """What ``setup`` decided; without a stream lines go to whatever standard error is at that moment."""

    level: Level
    render: structlog_typing.Processor
    stream: TextIO | None = None


_LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}
_WRITING = threading.Lock()
_FOLLOWING = {"drakit"}
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OUR_KEYS = frozenset({"event", "level", "logger", "timestamp", "exception", "stack"})
_METHODS = (("critical", 50), ("error", 40), ("warning", 30), ("info", 20))
_JSON = json.JSONEncoder(default=str)
_bound: contextvars.ContextVar[Mapping[str, object]] = contextvars.ContextVar("drakit_log_fields", default=types.MappingProxyType({}))


def get_logger(name: str) -> Logger:
    """The logger of one module; cheap, and bound to whatever ``setup`` says when a line is written."""
    logger: Logger = structlog.wrap_logger(_Sink(name), processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger).bind()
    return logger


def setup(*, level: Level = Level.INFO, style: Style = Style.JSON, stream: TextIO | None = None) -> None:
    """Decide what is shown and how, for loggers that exist and for those to come; ``stream`` is standard error unless given.

    Loggers taken from structlog itself, and those of the standard library, come out the same way.
    """
    _output.level, _output.render, _output.stream = level, _renderer(style, stream or sys.stderr), stream
    structlog.configure(processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger, logger_factory=_Sink)
    root = logging.getLogger()
    if not any(isinstance(handler, _Bridge) for handler in root.handlers):
        root.addHandler(_Bridge())
    follow()


def follow(*packages: str) -> None:
    """Let the standard library's loggers of these packages obey the level of ``setup``, as drakit's own do."""
    _FOLLOWING.update(packages)
    for package in _FOLLOWING:
        logging.getLogger(package).setLevel(_output.level)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Show nothing inside the block: for a caller that tells a person itself what would be logged."""
    before, _output.level = _output.level, Level.NOTHING
    try:
        yield
    finally:
        _output.level = before


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add fields to every line that this thread writes inside the block."""
    before = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(before)


def _renderer(style: Style, stream: TextIO) -> structlog_typing.Processor:
    if style is Style.JSON:
        return _as_json
    render = structlog.dev.ConsoleRenderer(
        colors=stream.isatty() and not os.environ.get("NO_COLOR"), exception_formatter=structlog.dev.plain_traceback
    )
    return lambda sink, method, event: render(sink, method, _for_console(event))


def _for_console(event: structlog_typing.EventDict) -> structlog_typing.EventDict:
    """The event with texts in which a terminal finds nothing to act on; only traces keep their lines."""
    kept = {"exception": "\n\t", "stack": "\n\t"}
    return {
        escaping.escaped(str(key)): escaping.escaped(value, keep=kept.get(key, "")) if isinstance(value, str) else value
        for key, value in event.items()
    }


def _as_json(_sink: Any, _method: str, event: structlog_typing.EventDict) -> str:
    return _JSON.encode(event)


_output = _Output(level=Level.WARNING, render=_renderer(Style.CONSOLE, sys.stderr))


def _drop_unwanted(_sink: Any, method: str, event: structlog_typing.EventDict) -> structlog_typing.EventDict:
    if _LEVELS.get(method, logging.ERROR) < _output.level:
        raise structlog.DropEvent
    return event


def _render(sink: Any, method: str, event: structlog_typing.EventDict) -> Any:
    if event.get("exc_info"):
        event = structlog.processors.format_exc_info(sink, method, event)
    return _output.render(sink, method, event)


def _complete(sink: "_Sink", method: str, event: structlog_typing.EventDict) -> structlog_typing.EventDict:
    """Whatever is bound, and level, name and time: in one step, because every claim writes lines."""
    for key, value in _bound.get().items():
        event.setdefault(key, value)
    event["level"] = "error" if method == "exception" else method
    event["logger"] = sink.name
    event["timestamp"] = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    return event


_PROCESSORS: list[structlog_typing.Processor] = [_drop_unwanted, _complete, _render]


class _Sink:
    """Writes finished lines of one logger, whole; a stream that is gone loses the line and nothing else."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        line = secrets.redacted(line)
        stream = _output.stream or sys.stderr
        try:
            with _WRITING:
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = exception = critical = msg


class _Bridge(logging.Handler):
    """Writes records of the standard library's logging as our lines. A record that cannot be written as it is never fails its caller."""

    def emit(self, record: logging.LogRecord) -> None:
        given = {key: value for key, value in vars(record).items() if key not in _RECORD_ATTRIBUTES}
        fields: structlog_typing.EventDict = {f"{key}_" if key in _OUR_KEYS else key: value for key, value in given.items()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        if record.stack_info:
            fields["stack"] = record.stack_info
        sink, method = _Sink(record.name), _method(record.levelno)
        try:
            fields["event"] = record.getMessage()
            line = _line(sink, method, dict(fields))
        except structlog.DropEvent:
            return
        except Exception:  # noqa: BLE001 - whatever an author's value does when it is written, the author's call goes on
            fault = traceback.format_exc(limit=0).strip()
            message = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
            line = _line(sink, method, {"event": message, "error": f"the line's fields cannot be written: {fault}"})
        sink.msg(line)


def _line(sink: _Sink, method: str, event: structlog_typing.EventDict) -> str:
    written = event
    for process in _PROCESSORS:
        written = process(sink, method, written)  # type: ignore[assignment] # the last one makes the text
    return str(written)


def _method(level: int) -> str:
    return next((method for method, least in _METHODS if level >= least), "debug")
