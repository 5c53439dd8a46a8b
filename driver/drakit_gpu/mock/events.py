"""The events of mock GPUs, shared by processes.

The last events are in a file of their own, numbered, so that any number of processes can read those after their start. They have a separate lock
and are never synced to disk: as with a real GPU, unread events are lost with the machine.
"""

import json
import pathlib
import time
from typing import Self

from drakit import machines, tables
from drakit_gpu.health import signals

_FILE = "gpu-events.json"
_LOCK = "gpu-events.lock"
_KEPT = 256
_POLL_SECONDS = 1.0

Numbered = tuple[int, signals.Event]


class EventLog:
    """The events of the machine in a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._file = machines.Mirror(directory / _FILE)

    def append(self, event: signals.Event) -> None:
        """Append an event."""
        with machines.locked(self._directory, _LOCK):
            events = self.since(0)
            number = events[-1][0] + 1 if events else 1
            kept = [*events, (number, event)][-_KEPT:]
            machines.rewrite(self._directory / _FILE, json.dumps({"events": [_encode_event(*entry) for entry in kept]}))

    def since(self, number: int) -> list[Numbered]:
        """Return the events after the one of that number, oldest first."""
        text = self.text()
        if text is None:
            return []
        events = [_decode_event(row) for row in tables.Table(json.loads(text), f"{self._directory / _FILE}: ").rows("events")]
        return [entry for entry in events if entry[0] > number]

    def text(self) -> str | None:
        """Return the text of the file with the last events; None before the first. If the file is unchanged, the call costs one ``stat``."""
        return self._file.text()

    def open(self) -> "MockEvents":
        """Return the events that follow."""
        events = self.since(0)
        return MockEvents(self, events[-1][0] if events else 0)


class MockEvents(signals.Events):
    """The events after a number; polls the file."""

    def __init__(self, log: EventLog, number: int) -> None:
        self._log = log
        self._number = number
        self._text: str | None = None
        self._queue: list[Numbered] = []

    def wait(self, seconds: float) -> signals.Event | None:
        deadline = time.monotonic() + seconds
        while not self._has_events():
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(_POLL_SECONDS, left))
        self._number, event = self._queue.pop(0)
        return event

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


def _encode_event(number: int, event: signals.Event) -> dict[str, object]:
    fields = {"number": number, "gpu": event.gpu, "kind": event.kind.value, "xid": event.xid, "instance": event.instance_id}
    return {key: value for key, value in fields.items() if value is not None}


def _decode_event(row: tables.Table) -> Numbered:
    event = signals.Event(
        gpu=row.text("gpu"),
        kind=signals.EventKind(row.choice("kind", [member.value for member in signals.EventKind])),
        xid=row.optional("xid", row.integer),
        instance_id=row.optional("instance", row.integer),
    )
    number = row.integer("number", least=1)
    row.close()
    return number, event
