"""Named health checks, run at every request. A check returns an empty text when it passes, else the reason of the failure.

Invariant: a check that raises has failed with the error as its reason, so a bug in it cannot make an unhealthy driver look healthy.
"""

import threading
from collections.abc import Callable, Mapping

Check = Callable[[], str]


class Checks:
    """The checks of one endpoint, such as readiness, by name. Thread-safe."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._notes: dict[str, Check] = {}
        self._guard = threading.Lock()

    def add(self, name: str, check: Check) -> None:
        """Add a check, and replace one of the same name."""
        with self._guard:
            self._checks[name] = check

    def add_note(self, name: str, note: Check) -> None:
        """Add a note, which is shown with the result and fails nothing, and replace one of the same name."""
        with self._guard:
            self._notes[name] = note

    def notes(self) -> Mapping[str, str]:
        """Return the texts of the notes by name, without empty ones."""
        with self._guard:
            notes = dict(self._notes)
        return {name: text for name, note in sorted(notes.items()) if (text := _run(note))}

    def failures(self) -> Mapping[str, str]:
        """Return the reasons of failed checks by name."""
        with self._guard:
            checks = dict(self._checks)
        return {name: reason for name, check in sorted(checks.items()) if (reason := _run(check))}

    def names(self) -> tuple[str, ...]:
        """Return the names of all checks, sorted."""
        with self._guard:
            return tuple(sorted(self._checks))


def _run(check: Check) -> str:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - any error fails the check
        return f"{type(error).__name__}: {error}"
