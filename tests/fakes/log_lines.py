"""The log lines that a test's code writes, as a process with --log-format json has them."""

import io
import json
from typing import Any

from drakit.telemetry import logs


class LogLines:
    """The lines since it was made, or cleared: warnings and errors, and after ``show_info`` all others but debugging."""

    def __init__(self) -> None:
        self._level = logs.Level.WARNING
        self.clear()

    def show_info(self) -> None:
        self._level = logs.Level.INFO
        self.clear()

    def clear(self) -> None:
        self._stream = io.StringIO()
        logs.setup(level=self._level, stream=self._stream)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]
