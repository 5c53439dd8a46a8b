"""The errors of expressions, by phase, and how an error shows its position in the source.

`CompileError` and `RunError` leave this package; `SourceError` is raised while an expression is read, `EvalError` and `BudgetError`
inside one evaluation. `&&`, `||` and loops absorb an `EvalError` of one side; nothing absorbs a `BudgetError`.
"""

from collections.abc import Iterable

from drakit_cluster.objects import devices


class CompileError(devices.SelectorError):
    """The expression does not compile in this environment. The author of the claim or class must change it."""


class RunError(devices.SelectorError):
    """The expression compiles, but has no verdict for this device."""


class SourceError(ValueError):
    """The text is not an expression; the error is at `offset`."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class EvalError(Exception):
    """A CEL error value: the result of one sub-expression."""


class BudgetError(Exception):
    """The evaluation spent more than its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def no_such_overload() -> EvalError:
    """Return the error of a function applied to values of types that no overload accepts."""
    return EvalError("no such overload")


def at_places(source: str, complaints: Iterable[tuple[int, str]]) -> CompileError:
    """Return one error with all complaints in the order of the source. Each complaint is an offset and a message."""
    return CompileError("\n".join(_located(source, offset, message) for offset, message in sorted(set(complaints))))


def _located(source: str, offset: int, message: str) -> str:
    """Return the message with line and column (from 1) and the source line."""
    before = source[:offset]
    line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1)
    shown = source.split("\n")[line - 1]
    return f"ERROR: <input>:{line}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^"
