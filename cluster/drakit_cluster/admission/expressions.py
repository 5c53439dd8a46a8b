"""CEL for admission: ``object``, ``oldObject``, ``request``, ``namespaceObject``, ``params`` and a policy's ``variables``.

The device selectors' engine evaluates the expressions. It has one variable, ``device``. In this module ``device`` holds all other variables,
and each expression is compiled inside bindings that give them their own names. Types are not checked: every variable is dynamic, as
``object`` is in Kubernetes. ``authorizer`` does not exist, and an expression that uses it does not compile.
"""

import dataclasses
import functools
from collections.abc import Mapping

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import build, paths, values
from drakit_cluster.cel.selectors import with_deep_stack
from drakit_cluster.cel.syntax import parser
from drakit_cluster.cel.types import celtypes, checker, declarations, validators
from drakit_cluster.objects.json_types import Json

NAMES = ("object", "oldObject", "request", "namespaceObject", "params", "variables")
COST_LIMIT = 10_000_000
"""The cost limit of one expression: Kubernetes' limit for each expression of a policy."""


class ExpressionError(Exception):
    """An expression that does not compile, or has no value; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """An expression ready to run."""

    text: str
    _run: paths.Run
    _slots: int

    def value(self, variables: Mapping[str, values.Value]) -> values.Value:
        """Return the value; raise ExpressionError."""
        frame = paths.Frame(dict(variables), self._slots, COST_LIMIT)
        try:
            result = with_deep_stack(lambda: self._run(frame))
            frame.afford()
        except (errors.EvalError, errors.BudgetError, RecursionError) as error:
            raise ExpressionError(str(error)) from error
        return result

    def verdict(self, variables: Mapping[str, values.Value]) -> bool:
        """Return a value that must be true or false; raise ExpressionError."""
        result = self.value(variables)
        if not isinstance(result, bool):
            raise ExpressionError("the expression is neither true nor false")
        return result


@functools.lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """Compile an expression, once; raise ExpressionError."""
    try:
        run, slots = with_deep_stack(lambda: _compile(text))
    except (errors.CompileError, RecursionError) as error:
        raise ExpressionError(str(error)) from error
    return Expression(text=text, _run=run, _slots=slots)


def _compile(text: str) -> tuple[paths.Run, int]:
    plain = _environment(*NAMES)
    validators.validate(text, checker.check(text, parser.parse(text), plain))
    bound = text
    for name in NAMES:
        bound = f"cel.bind({name}, device.{name}, {bound}\n)"
    return build.build(checker.check(bound, parser.parse(bound), _environment("device")))


@functools.cache
def _environment(*names: str) -> declarations.Environment:
    base = declarations.environment(declarations.Gates(), declarations.EnvType.NEW)
    idents = {name: declared for name, declared in base.idents.items() if name != "device"}
    return dataclasses.replace(base, idents=idents | dict.fromkeys(names, celtypes.DYN))


class Variables(values.DomainMap):
    """A policy's variables, each evaluated on first use. An error fails the expression that uses the variable."""

    __slots__ = ("_expressions", "_scope")

    def __init__(self, expressions: Mapping[str, str], scope: Mapping[str, Json]) -> None:
        super().__init__()
        self._expressions = expressions
        self._scope = scope

    def __missing__(self, key: str) -> values.Value:
        if key not in self._expressions:
            raise errors.EvalError(f"no such key: {key}")
        try:
            self[key] = compiled(self._expressions[key]).value({**self._scope, "variables": self})
        except ExpressionError as error:
            raise errors.EvalError(f"composited variable {key!r} fails to evaluate: {error}") from error
        return self[key]
