"""The events of mock GPUs, shared by processes.

The last events are in a file of their own, numbered, so that any number of processes can read those after their start. They have a separate lock
and are never synced to disk: as with a real GPU, unread events are lost with the machine.
"""

import dataclasses
import json
import pathlib
import time
from typing import Annotated, Self

from drakit import machines, wire
from drakit_gpu.health import signals

_FILE = "gpu-events.json"
_LOCK = "gpu-events.lock"
_KEPT = 256
_POLL_SECONDS = 1.0

_FORMAT = wire.Format(ignore_unknown=True, fields={(signals.Event, "instance_id"): wire.Field(name="instance")})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Numbered:
    number: int
    event: Annotated[signals.Event, wire.Field(inline=True, converter=_FORMAT.converter(signals.Event))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Content:
    """The content of the file: the last events, oldest first."""

    events: tuple[_Numbered, ...]


_FORMAT.converter(_Content)  # compiled at import, as the identities of devices are


class EventLog:
    """The events of the machine in a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._file = machines.Mirror(directory / _FILE)

    def append(self, event: signals.Event) -> None:
        """Append an event."""
        with machines.locked(self._directory, _LOCK):
            text = self.text()
            before = [] if text is None else json.loads(text)["events"]
            number = before[-1]["number"] + 1 if before else 1
            kept = [*before, _FORMAT.encode(_Numbered(number=number, event=event))][-_KEPT:]
            machines.rewrite(self._directory / _FILE, json.dumps({"events": kept}))

    def since(self, number: int) -> list[_Numbered]:
        """Return the events after the one of that number, oldest first."""
        text = self.text()
        events = () if text is None else _FORMAT.decode(_Content, json.loads(text)).events
        return [entry for entry in events if entry.number > number]

    def last(self) -> int:
        """Return the number of the last event, 0 before the first."""
        return max((entry.number for entry in self.since(0)), default=0)

    def text(self) -> str | None:
        """Return the text of the file with the last events; None before the first. If the file is unchanged, the call costs one ``stat``."""
        return self._file.text()

    def open(self) -> "MockEvents":
        """Return the events that follow."""
        return MockEvents(self, self.last())


class MockEvents(signals.Events):
    """The events after a number; polls the file."""

    def __init__(self, log: EventLog, number: int) -> None:
        self._log = log
        self._number = number
        self._text: str | None = None
        self._queue: list[_Numbered] = []

    def wait(self, seconds: float) -> signals.Event | None:
        deadline = time.monotonic() + seconds
        while not self._has_events():
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(_POLL_SECONDS, left))
        following = self._queue.pop(0)
        self._number = following.number
        return following.event

    def _has_events(self) -> bool:
        if not self._queue and (text := self._log.text()) != self._text:
            self._text, self._queue = text, self._log.since(self._number)
        return bool(self._queue)

    def close(self) -> None:
        """Do nothing: the mock holds no resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
