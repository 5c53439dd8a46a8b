"""What can go wrong with a device selector, by the moment it goes wrong.

`CompileError` and `RunError` leave this package; `EvalError` and `BudgetError` are raised inside one evaluation.
`&&`, `||` and loops absorb an `EvalError` of one side; nothing absorbs a `BudgetError`.
"""

from drakit_cluster.objects import devices


class CompileError(devices.SelectorError):
    """The expression does not compile in this environment. The author of the claim or class must change it."""


class RunError(devices.SelectorError):
    """The expression compiles, but has no verdict for this device."""


class EvalError(Exception):
    """A CEL error value: the result of one sub-expression."""


class BudgetError(Exception):
    """The evaluation spent more than its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def no_such_overload(*_: object) -> EvalError:
    """The error of a function applied to values of types it is not made for."""
    return EvalError("no such overload")
