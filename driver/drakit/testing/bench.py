"""The inputs of ``check_driver``: a factory of the driver, its hardware, and the claims to try."""

import contextlib
import dataclasses
import pathlib
import types
from collections.abc import Callable, Mapping

from drakit.core import claim as claims
from drakit.core import quantity
from drakit.testing import crashing, differences
from drakit.testing import node as nodes
from drakit.testing import report as reports


class _TidyNode(nodes.Node):
    """A node that releases its devices after a failed check, so that the next check can use them. Each call gets the whole time of the limit."""

    def __init__(self, make: nodes.DriverFactory, *, folder: pathlib.Path | None = None, renew: Callable[[], object]) -> None:
        self._renew = renew
        renew()
        super().__init__(make, folder=folder)

    def restart(self, *, boot_id: str | None = None) -> None:
        """End the process and start another."""
        self._renew()
        super().restart(boot_id=boot_id)

    def lose_journal(self) -> None:
        """Make the journal unreadable and restart."""
        self._renew()
        super().lose_journal()

    def try_prepare(self, ref: claims.ClaimRef) -> claims.Outcome:
        """Prepare the claim."""
        self._renew()
        return super().try_prepare(ref)

    def unprepare(self, ref: claims.ClaimRef) -> None:
        """Unprepare the claim."""
        self._renew()
        super().unprepare(ref)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        if kind is not None and issubclass(kind, Exception):
            with contextlib.suppress(Exception):  # The journal is closed if the driver did not start again.
                for entry in self.entries:
                    with contextlib.suppress(Exception):
                        self.unprepare(entry.claim)
        super().__exit__(kind, error, trace)


@dataclasses.dataclass(kw_only=True)
class Bench:
    """The driver to check and the inputs of the checks. Each of ``tried`` is the devices of one claim.

    ``renew`` is called before each call of the driver (``call_limit``). ``latest`` is the name of the last check that ran.
    """

    make: nodes.DriverFactory
    hardware: Callable[[], object]
    has_hardware: bool
    tried: tuple[tuple[str, ...], ...]
    parameters: tuple[Mapping[str, object], ...]
    refused: tuple[Mapping[str, object], ...]
    consumed: Mapping[str, quantity.Amount]
    exclusive: tuple[str, ...]
    earlier: tuple[pathlib.Path, ...]
    death: crashing.Death
    every: int
    renew: Callable[[], object] = bool
    crash_points: int = 0
    latest: str = ""
    is_stuck: bool = False

    def __post_init__(self) -> None:
        self.at_first = self.hardware()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The devices to try, one group for each claim. Raises reports.NotApplicableError if there are none."""
        if not self.tried:
            raise reports.NotApplicableError("discover() offers no device to try")
        return self.tried

    def node(self, folder: pathlib.Path | None = None) -> nodes.Node:
        """Return a new node."""
        return _TidyNode(self.make, folder=folder, renew=self.renew)

    def claim(self, node: nodes.Node, *names: str, parameters: Mapping[str, object] | None = None) -> claims.ClaimRef:
        """Return a claim for these devices."""
        return node.claim(*names, parameters=parameters, consumed=self.consumed)


def require(condition: object, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def require_as_it_was(bench: Bench, before: object, message: str) -> None:
    """Raise AssertionError with the differences unless the hardware is as before."""
    require_unchanged(before, bench.hardware(), message)


def require_unchanged(before: object, after: object, message: str) -> None:
    """Raise AssertionError with the differences unless two states of the hardware are equal."""
    if after != before:
        raise AssertionError(f"{message}: {differences.describe(before, after)}")
