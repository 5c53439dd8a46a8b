"""Named health checks, run at every request. A check returns an empty text when it passes, else what is wrong.

Invariant: a check that raises is a failed check with the error as its reason, so a bug in one cannot make an unhealthy driver look healthy.
"""

import threading
from collections.abc import Callable, Mapping

Check = Callable[[], str]


class Checks:
    """Checks by name, for one question such as "is it ready?"; added by those who know the answer, from any thread."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._guard = threading.Lock()

    def add(self, name: str, check: Check) -> None:
        """Add a check; one of the same name is replaced."""
        with self._guard:
            self._checks[name] = check

    def failures(self) -> Mapping[str, str]:
        """Return what is wrong, by the name of the check; empty when all pass."""
        with self._guard:
            checks = dict(self._checks)
        return {name: why for name, check in sorted(checks.items()) if (why := _ask(check))}

    def names(self) -> tuple[str, ...]:
        """Return the names of all checks, sorted."""
        with self._guard:
            return tuple(sorted(self._checks))


def _ask(check: Check) -> str:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the check has failed
        return f"{type(error).__name__}: {error}"
