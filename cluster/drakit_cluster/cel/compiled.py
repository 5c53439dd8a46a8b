"""Compiled selectors and their cache."""

import dataclasses
import threading
from typing import Final, TypeVar

from drakit_cluster.cel import deep, errors
from drakit_cluster.cel.cost import estimate
from drakit_cluster.cel.evaluation import build, evaluation, values, views
from drakit_cluster.cel.syntax import parsing
from drakit_cluster.cel.types import celtypes, checker, declarations, validators
from drakit_cluster.cel.types.declarations import EnvType
from drakit_cluster.objects import devices, features
from drakit_cluster.objects.json_types import Object

LENGTH_LIMIT: Final = 10 * 1024
"""The longest expression that the API takes, in bytes (`CELSelectorExpressionMaxLength`)."""
COST_LIMIT: Final = 1_000_000
"""What an expression may cost, estimated and spent (`CELSelectorExpressionMaxCost`)."""
_CACHED: Final = 4096
_Key = TypeVar("_Key")
_Held = TypeVar("_Held")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The feature gates that selectors depend on."""

    consumable_capacity: bool = True
    list_type_attributes: bool = False

    @classmethod
    def of(cls, gates: features.FeatureGates) -> "Gates":
        return cls(
            consumable_capacity=gates.on(features.Gate.CONSUMABLE_CAPACITY),
            list_type_attributes=gates.on(features.Gate.LIST_TYPE_ATTRIBUTES),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A selector ready to run. `max_cost` is its worst case; above `COST_LIMIT` the API refuses it."""

    expression: str
    output: str
    max_cost: int
    _run: evaluation.Run = dataclasses.field(repr=False)
    _slots: int = dataclasses.field(repr=False)

    def evaluate(self, device: dict[str, values.Value], limit: int = COST_LIMIT) -> tuple[bool, int]:
        """The verdict on a device, and what it cost. Raises RunError."""
        frame = evaluation.Frame(device, self._slots, limit)
        try:
            verdict = self._run(frame)
            frame.afford()
        except (errors.EvalError, errors.BudgetError) as error:
            raise errors.RunError(str(error)) from error
        if not isinstance(verdict, bool):
            found = type(verdict).__name__
            raise errors.RunError(f"CEL result of type {found} could not be converted to bool")
        return verdict, frame.cost


def compile_expression(expression: str, gates: Gates, env_type: EnvType) -> Compiled:
    """Compile, without a cache. Raises CompileError."""
    if len(expression.encode()) > LENGTH_LIMIT:
        raise errors.CompileError(f"expression is longer than {LENGTH_LIMIT} bytes")
    environment = declarations.environment(gates, env_type)
    try:
        checked = checker.check(expression, parsing.parse(expression), environment)
        validators.validate(expression, checked)
        output = _output(checked, environment)
        run, slots = build.build(checked)
    except errors.CompileError as error:
        raise errors.CompileError(_summary(str(error))) from error
    return Compiled(expression=expression, output=str(output), max_cost=estimate.worst_case(checked), _run=run, _slots=slots)


def _output(checked: checker.Checked, environment: declarations.Environment) -> celtypes.Type:
    """The type of the whole expression. Raises CompileError unless it is bool or may be."""
    output = checked.type_of(checked.root)
    if output not in (celtypes.BOOL, celtypes.ANY, environment.attribute):
        raise errors.CompileError(f"must evaluate to bool or the unknown type, not {output}")
    return output


def _summary(message: str) -> str:
    return f"compilation failed: {message}" if message.startswith("ERROR:") else message


class Selectors:
    """Compiles and evaluates selectors under one set of feature gates. Every method may be called from any thread."""

    def __init__(self, gates: "Gates | features.FeatureGates | None" = None, cost_limit: int = COST_LIMIT) -> None:
        self._gates = Gates.of(gates) if isinstance(gates, features.FeatureGates) else gates or Gates()
        self._limit = cost_limit
        self._lock = threading.Lock()
        self._compiled: dict[tuple[str, EnvType], Compiled | str] = {}
        self._devices: dict[devices.DeviceView, dict[str, values.Value]] = {}

    def compile(self, expression: str, env_type: EnvType = EnvType.NEW) -> Compiled:
        """The compiled expression; a failure is remembered as well. Raises CompileError."""
        key = (expression, env_type)
        known = self._compiled.get(key)
        if known is None:
            known = self._compile(expression, env_type)
            with self._lock:
                _make_room(self._compiled)
                self._compiled[key] = known
        if isinstance(known, str):
            raise errors.CompileError(known)
        return known

    def _compile(self, expression: str, env_type: EnvType) -> Compiled | str:
        try:
            return deep.call(lambda: compile_expression(expression, self._gates, env_type))
        except errors.CompileError as error:
            return str(error)
        except RecursionError:
            return "compilation failed: the expression is nested too deeply"

    def matches(self, expression: str, device: devices.DeviceView) -> bool:
        """The verdict of a stored expression on a device. Raises CompileError or RunError."""
        return self.verdict(self.compile(expression, EnvType.STORED), device)

    def verdict(self, compiled: Compiled, device: devices.DeviceView) -> bool:
        """The verdict of a compiled expression on a device. Raises RunError."""
        variables = self._variables(device)
        try:
            return deep.call(lambda: compiled.evaluate(variables, self._limit))[0]
        except RecursionError as error:
            raise errors.RunError("the expression is nested too deeply") from error

    def _variables(self, device: devices.DeviceView) -> dict[str, values.Value]:
        known = self._devices.get(device)
        if known is None:
            known = views.device(device, lists=self._gates.list_type_attributes)
            with self._lock:
                _make_room(self._devices)
                self._devices[device] = known
        return known


def _make_room(cache: dict[_Key, _Held]) -> None:
    """Forget the oldest entry of a full cache."""
    if len(cache) >= _CACHED:
        del cache[next(iter(cache))]


def conformance(expression: str, device: devices.DeviceView, gates: features.FeatureGates, env_type: str) -> Object:
    """What Kubernetes' recorded runs say of one expression and one device: an outcome, and the verdict if there is one."""
    selectors = Selectors(gates)
    kind = EnvType.NEW if env_type.startswith(EnvType.NEW.value) else EnvType.STORED
    try:
        compiled = selectors.compile(expression, kind)
    except errors.CompileError as error:
        return {"outcome": "compileError", "error": str(error)}
    try:
        return {"outcome": "match", "match": selectors.verdict(compiled, device)}
    except errors.RunError as error:
        return {"outcome": "matchError", "error": str(error)}
