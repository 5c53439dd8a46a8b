"""Structured logs: each line has one constant message and key=value fields, as JSON or for a console, on standard error.

Every module makes its logger once, ``_log = logs.get_logger(__name__)``, at import; device families and drivers' authors call it
``drakit.get_logger``. ``setup`` sets level and style for all loggers, at any time. Fields of ``bound`` belong to the thread, so every line inside a
call has the fields of that call. Before ``setup``, warnings and errors are shown.

Records of the standard library are written in the same format, with the keys of ``extra`` as fields. Loggers of packages passed to ``follow`` have
the level of ``setup``; loggers of other libraries keep their own level, by default WARNING.

Every field is cut to a length that no value from outside exceeds (``texts.cut``), with a mark. A value that cannot be written never fails the caller.
"""

import contextlib
import contextvars
import dataclasses
import datetime
import enum
import itertools
import json
import logging
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

import structlog
from structlog import typing as structlog_typing

from drakit import texts
from drakit.telemetry import escaping, secrets

Logger = structlog.stdlib.BoundLogger


class Style(enum.Enum):
    """The style of a line."""

    JSON = "json"
    CONSOLE = "console"


class Level(enum.IntEnum):
    """The lowest level that is shown."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR
    NOTHING = logging.CRITICAL + 1


@dataclasses.dataclass(kw_only=True)
class _Output:
    """The output that ``setup`` configured; without a stream, lines go to the current standard error."""

    level: Level
    render: structlog_typing.Processor
    stream: TextIO | None = None


_LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}
_WRITING = threading.Lock()
_FOLLOWING = {"drakit"}
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TRACES = frozenset({"exception", "stack"})
_ADDED_KEYS = frozenset({"level", "logger", "timestamp"})
_RESERVED_KEYS = _ADDED_KEYS | _TRACES | {"event"}
"""The keys of the line itself. A field with such a name gets an underscore."""
_METHODS = (("critical", 50), ("error", 40), ("warning", 30), ("info", 20))
_JSON = json.JSONEncoder(default=str)
_LONG_MAX = 32_768
_MEMBERS_MAX = 100
_NESTING_MAX = 8
_INTEGER_BITS_MAX = 1024
_observers: list[Callable[[str], object]] = []
_bound: contextvars.ContextVar[Mapping[str, object]] = contextvars.ContextVar("drakit_log_fields", default=types.MappingProxyType({}))


def get_logger(name: str) -> Logger:
    """Return the logger of one module; it uses the configuration of ``setup`` at the time of each line."""
    if not isinstance(name, str):
        raise TypeError(f"get_logger: name is {type(name).__name__}; give __name__")
    logger: Logger = structlog.wrap_logger(_Sink(name), processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger).bind()
    return logger


def setup(*, level: Level = Level.INFO, style: Style = Style.JSON, stream: TextIO | None = None) -> None:
    """Set level and style of all present and future loggers; ``stream`` is standard error by default.

    Loggers of structlog itself and of the standard library write in the same format.
    """
    _output.level, _output.render, _output.stream = level, _renderer(style, stream or sys.stderr), stream
    structlog.configure(processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger, logger_factory=_Sink)
    root = logging.getLogger()
    if not any(isinstance(handler, _Bridge) for handler in root.handlers):
        root.addHandler(_Bridge())
    follow()


def follow(*packages: str) -> None:
    """Give the standard library's loggers of these packages the level of ``setup``, as drakit's own have."""
    _FOLLOWING.update(packages)
    for logger in map(logging.getLogger, _FOLLOWING):
        if logger.level != _output.level:  # Setting a level goes through all loggers of the process.
            logger.setLevel(_output.level)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Write no log lines inside the block, for a caller that reports the same to the user itself."""
    before, _output.level = _output.level, Level.NOTHING
    try:
        yield
    finally:
        _output.level = before


@contextlib.contextmanager
def copied(to: Callable[[str], object]) -> Iterator[None]:
    """Also call ``to`` with every line that any thread writes inside the block."""
    _observers.append(to)
    try:
        yield
    finally:
        _observers.remove(to)


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
    """Return the event with escaped texts; only traces keep their line breaks."""
    return {
        escaping.escaped(str(key)): escaping.escaped(value, keep="\n\t" if key in _TRACES else "") if isinstance(value, str) else value
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
    try:
        # Most fields are short texts, and a node writes three lines for each claim.
        fields = {
            key: value if type(value) is str and len(value) <= texts.TEXT_MAX else _bounded_field(key, value)
            for key, value in event.items()
        }
    except Exception:  # noqa: BLE001 - an author's value that cannot be formatted must not fail the author's call
        fault = traceback.format_exc(limit=0).strip()
        fields = {key: event[key] for key in ("event", *_ADDED_KEYS)} | {"error": f"the line's fields cannot be written: {fault}"}
    return _output.render(sink, method, fields)


def _bounded_field(key: str, value: object) -> object:
    if isinstance(value, str):
        return texts.cut(value, _LONG_MAX if key in _TRACES else texts.TEXT_MAX)
    shown = _bounded(value)
    is_long = isinstance(shown, dict | list) and len(str(shown)) > _LONG_MAX
    return texts.cut(str(shown), _LONG_MAX) if is_long else shown


def _bounded(value: object, nesting: int = 0) -> object:
    """Return the value with long texts cut and long collections shortened, because a claim or a file may have put anything there."""
    if isinstance(value, str):
        return texts.cut(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _INTEGER_BITS_MAX else texts.cut(hex(value))
    if nesting < _NESTING_MAX and isinstance(value, Mapping):
        members = itertools.islice(value.items(), _MEMBERS_MAX)
        shown: dict[str, object] = {texts.cut(str(key)): _bounded(member, nesting + 1) for key, member in members}
        return shown if len(value) <= _MEMBERS_MAX else {**shown, "...": f"[{len(value) - _MEMBERS_MAX} members cut]"}
    if nesting < _NESTING_MAX and isinstance(value, list | tuple | set | frozenset):
        elements = [_bounded(element, nesting + 1) for element in itertools.islice(value, _MEMBERS_MAX)]
        return elements if len(value) <= _MEMBERS_MAX else [*elements, f"...[{len(value) - _MEMBERS_MAX} elements cut]"]
    return texts.cut(str(value))


def _complete(sink: "_Sink", method: str, event: structlog_typing.EventDict) -> structlog_typing.EventDict:
    """Add bound fields, level, logger and time, in one step for speed, because every claim writes lines."""
    if not _ADDED_KEYS.isdisjoint(event):
        event = {f"{key}_" if key in _ADDED_KEYS else key: value for key, value in event.items()}
    for key, value in _bound.get().items():
        event.setdefault(key, value)
    event["level"] = "error" if method == "exception" else method
    event["logger"] = sink.name
    event["timestamp"] = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    return event


_PROCESSORS: list[structlog_typing.Processor] = [_drop_unwanted, _complete, _render]


class _Sink:
    """The writer of one logger's finished lines. A line to a closed stream is dropped without an error."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        line = secrets.redacted(line)
        for observe in tuple(_observers):
            observe(line)
        stream = _output.stream or sys.stderr
        try:
            with _WRITING:
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = exception = critical = msg


class _Bridge(logging.Handler):
    """A handler that writes records of the standard library in the format of drakit. A record that cannot be formatted never fails its caller."""

    def emit(self, record: logging.LogRecord) -> None:
        given = {key: value for key, value in vars(record).items() if key not in _RECORD_ATTRIBUTES}
        fields: structlog_typing.EventDict = {f"{key}_" if key in _RESERVED_KEYS else key: value for key, value in given.items()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        if record.stack_info:
            fields["stack"] = record.stack_info
        sink, method = _Sink(record.name), _method(record.levelno)
        try:
            fields["event"] = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit the message must not fail the author's call
            fields["event"] = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
            fields["error"] = f"the message's arguments do not fit: {traceback.format_exc(limit=0).strip()}"
        with contextlib.suppress(structlog.DropEvent):
            sink.msg(_line(sink, method, fields))


def _line(sink: _Sink, method: str, event: structlog_typing.EventDict) -> str:
    written = event
    for process in _PROCESSORS:
        written = process(sink, method, written)  # type: ignore[assignment] # the last one makes the text
    return str(written)


def _method(level: int) -> str:
    return next((method for method, least in _METHODS if level >= least), "debug")
