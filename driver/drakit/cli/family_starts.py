"""Start the device families of one process, and retry a family whose socket's path has a file of another program.

Such a family delays no other one. A retry looks at the path first, because a start opens the journal and starts the author.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from drakit.core import errors
from drakit.serving import unix_sockets
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

RETRY_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FamilyStart:
    """A family to start: its driver's name, the path of its service socket, and the function that starts it or leaves nothing behind."""

    driver: str
    socket: pathlib.Path
    start: Callable[[], None]


class FamilyStarts:
    """The families of one process; ``waiting`` are those to retry, each with the reason."""

    def __init__(self, families: Sequence[FamilyStart]) -> None:
        self._families = families
        self.waiting: dict[str, str] = {}

    def reason(self) -> str:
        """Return why families have not started, empty where all have."""
        return "; ".join(dict(self.waiting).values())

    def start(self) -> None:
        """Start each family once. Raises OccupiedError if none can start, and any other error of a start."""
        for family in self._families:
            try:
                family.start()
            except unix_sockets.OccupiedError as error:
                if len(self.waiting) + 1 == len(self._families):
                    raise
                self._wait(family, error)

    def retry(self) -> None:
        """Start the waiting families whose path is free. A family that fails waits on: its error must not end the others."""
        for family in self._families:
            if family.driver in self.waiting:
                try:
                    unix_sockets.refuse_occupied(family.socket)
                    family.start()
                except Exception as error:  # noqa: BLE001 - the other families serve
                    self._wait(family, error)
                else:
                    del self.waiting[family.driver]

    def _wait(self, family: FamilyStart, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if self.waiting.get(family.driver) != text:
            is_expected = isinstance(error, errors.DrakitError)
            _log.error("family not started: retrying", driver=family.driver, error=text, retry_in_s=RETRY_SECONDS, exc_info=not is_expected)
        self.waiting[family.driver] = text
