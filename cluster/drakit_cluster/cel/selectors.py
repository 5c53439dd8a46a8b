"""Selectors: expressions compiled once and evaluated on devices, both cached.

A device is `device` in an expression: attributes and capacities by domain and id. A name without a domain belongs to the driver's domain.
Lists count only if their gate is on. A device with an unreadable attribute has no verdict at all.
"""

import enum
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from drakit_cluster.cel import errors, estimate
from drakit_cluster.cel.evaluation import build, paths, values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import quantities, semver
from drakit_cluster.cel.syntax import parser
from drakit_cluster.cel.types import celtypes, checker, declarations, validators
from drakit_cluster.cel.types.declarations import EnvType, Gates
from drakit_cluster.objects import devices, features
from drakit_cluster.objects.json_types import Json

LENGTH_LIMIT: Final = 10 * 1024
"""The longest expression that the API accepts, in bytes (`CELSelectorExpressionMaxLength`)."""
COST_LIMIT: Final = 1_000_000
"""The most steps of an expression, estimated and at run time. Kubernetes limits costs to this number (`CELSelectorExpressionMaxCost`)."""
_FRAMES: Final = 6000
"""Twice the Python frames that 250 levels of the deepest construct need."""
_CACHED: Final = 4096
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def with_deep_stack(work: Callable[[], _Value]) -> _Value:
    """Return what `work` returns, with room for the 250 levels that Kubernetes allows. Raises RecursionError if that is not enough.

    The limit is raised for the whole process when an expression first needs it. Python functions that call each other use no C stack, so a
    higher limit does not affect other code.
    """
    try:
        return work()
    except RecursionError:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))
        return work()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A selector ready to run. `max_cost` is its worst case; above `COST_LIMIT` the API refuses it."""

    expression: str
    output: str
    max_cost: int
    _run: paths.Run = field(repr=False)
    _slots: int = field(repr=False)

    def evaluate(self, device: dict[str, Value], limit: int = COST_LIMIT) -> tuple[bool, int]:
        """Return the verdict on a device, and its cost. Raises RunError."""
        verdict, cost = self.value(device, limit)
        if not isinstance(verdict, bool):
            raise errors.RunError(f"CEL result of type {type(verdict).__name__} could not be converted to bool")
        return verdict, cost

    def value(self, device: dict[str, Value], limit: int = COST_LIMIT) -> tuple[Value, int]:
        """Return the value for a device, of any type, and its cost. Raises RunError."""
        frame = paths.Frame(device, self._slots, limit)
        try:
            value = self._run(frame)
            frame.afford()
        except (errors.EvalError, errors.BudgetError) as error:
            raise errors.RunError(str(error)) from error
        return value, frame.cost


class Purpose(enum.Enum):
    """What an expression is for, which decides what types it may have."""

    SELECTOR = "selector"
    DERIVED_ATTRIBUTE = "derived attribute"


_ELEMENTS: Final = (celtypes.STRING, celtypes.INT, celtypes.BOOL, celtypes.SEMVER)
"""The types of a derived attribute, and of the elements of a list."""


def _compile(expression: str, gates: Gates, env_type: EnvType, purpose: Purpose) -> Compiled:
    if len(expression.encode()) > LENGTH_LIMIT:
        raise errors.CompileError(f"expression is longer than {LENGTH_LIMIT} bytes")
    environment = declarations.environment(gates, env_type)
    try:
        checked = checker.check(expression, parser.parse(expression), environment)
        validators.validate(expression, checked)
        output = (_output if purpose is Purpose.SELECTOR else _derived_output)(checked, environment)
        run, slots = build.build(checked)
    except errors.CompileError as error:
        message = str(error)
        raise errors.CompileError(f"compilation failed: {message}" if message.startswith("ERROR:") else message) from error
    return Compiled(expression=expression, output=output, max_cost=estimate.worst_case(checked), _run=run, _slots=slots)


def _output(checked: checker.Checked, environment: declarations.Environment) -> str:
    """Return the type of the whole expression. Raises CompileError unless it is bool or may be."""
    output = checked.types[checked.root]
    if output not in (celtypes.BOOL, celtypes.ANY, environment.attribute):
        raise errors.CompileError(f"must evaluate to bool or the unknown type, not {output}")
    return str(output)


def _derived_output(checked: checker.Checked, environment: declarations.Environment) -> str:
    """Return the type of the whole expression. Raises CompileError unless it may be a string, int, bool, semver or a list of these."""
    output = checked.types[checked.root]
    element = output.parameters[0] if output.kind is celtypes.Kind.LIST else output
    if not element.wild and element.kind is not celtypes.Kind.PARAM and element not in (*_ELEMENTS, environment.attribute):
        raise errors.CompileError(f"must evaluate to a string, int, bool, semver or a list of one of these, not {output}")
    return str(output)


class Selectors:
    """Compiles and evaluates selectors under one set of feature gates. Every method may be called from any thread."""

    def __init__(self, gates: Gates | features.FeatureGates | None = None, cost_limit: int = COST_LIMIT) -> None:
        self._gates = Gates.of(gates) if isinstance(gates, features.FeatureGates) else gates or Gates()
        self._limit = cost_limit
        self._lock = threading.Lock()
        self._compiled: dict[tuple[str, EnvType, Purpose], Compiled | str] = {}
        self._devices: dict[devices.DeviceView, dict[str, Value]] = {}

    def compile(self, expression: str, env_type: EnvType = EnvType.NEW, purpose: Purpose = Purpose.SELECTOR) -> Compiled:
        """Return the compiled expression; a failure is cached as well. Raises CompileError."""
        key = (expression, env_type, purpose)
        cached = self._compiled.get(key)
        if cached is None:
            cached = self._cache(self._compiled, key, self._compile_result(expression, env_type, purpose))
        if isinstance(cached, str):
            raise errors.CompileError(cached)
        return cached

    def _compile_result(self, expression: str, env_type: EnvType, purpose: Purpose) -> Compiled | str:
        try:
            return with_deep_stack(lambda: _compile(expression, self._gates, env_type, purpose))
        except errors.CompileError as error:
            return str(error)
        except RecursionError:
            return "compilation failed: the expression is nested too deeply"

    def matches(self, expression: str, device: devices.DeviceView) -> bool:
        """Return the verdict of a stored expression on a device. Raises CompileError or RunError."""
        return self.verdict(self.compile(expression, EnvType.STORED), device)

    def verdict(self, compiled: Compiled, device: devices.DeviceView) -> bool:
        """Return the verdict of a compiled expression on a device. Raises RunError."""
        variables = self._variables(device)
        try:
            return with_deep_stack(lambda: compiled.evaluate(variables, self._limit))[0]
        except RecursionError as error:
            raise errors.RunError("the expression is nested too deeply") from error

    def derive(self, expression: str, device: devices.DeviceView) -> devices.AttributeValue:
        """Return the value of a derived attribute, whose expression is stored. Raises CompileError or RunError."""
        compiled, variables = self.compile(expression, EnvType.STORED, Purpose.DERIVED_ATTRIBUTE), self._variables(device)
        try:
            value = with_deep_stack(lambda: compiled.value(variables, self._limit))[0]
        except RecursionError as error:
            raise errors.RunError("the expression is nested too deeply") from error
        elements = frozenset(map(_element, value if isinstance(value, (list, tuple)) else [value]))
        if len({kind for kind, _ in elements}) > 1:
            raise errors.RunError("CEL result is a list of values of different types")
        return elements

    def _variables(self, device: devices.DeviceView) -> dict[str, Value]:
        cached = self._devices.get(device)
        if cached is None:
            cached = self._cache(self._devices, device, _read_device(device, lists=self._gates.list_type_attributes))
        return cached

    def _cache(self, cache: dict[_Key, _Value], key: _Key, value: _Value) -> _Value:
        """Add an entry to a cache; a full cache drops its oldest entry."""
        with self._lock:
            if len(cache) >= _CACHED:
                del cache[next(iter(cache))]
            cache[key] = value
        return value


def _read_device(view: devices.DeviceView, *, lists: bool) -> dict[str, Value]:
    """Return the variable `device`. Raises RunError when an attribute or a capacity cannot be read."""
    attributes, capacity = values.DomainMap(), values.DomainMap()
    for name, attribute in view.attributes.items():
        _put(attributes, view.driver, name, _attribute(name, attribute, lists=lists))
    for name, amount in view.capacity.items():
        try:
            _put(capacity, view.driver, name, quantities.parse(amount))
        except ValueError as error:
            raise errors.RunError(f"capacity {name}: {error}") from error
    return {
        "driver": view.driver,
        "allowMultipleAllocations": view.allow_multiple_allocations,
        "attributes": attributes,
        "capacity": capacity,
    }


def _element(value: Value) -> devices.Element:
    """Return a value of CEL as an element of an attribute. Raises RunError for other types than attributes have."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int) and not isinstance(value, values.Uint):
        return "int", value
    if isinstance(value, str):
        return "string", value
    if isinstance(value, semver.Semver):
        return "version", str(value)
    raise errors.RunError(f"CEL result of type {type(value).__name__} is no string, int, bool or semver, and no list of one of these")


def _put(domains: values.DomainMap, driver: str, name: str, value: Value) -> None:
    domain, slash, key = name.partition("/")
    domains.setdefault(domain if slash else driver, {})[key if slash else name] = value


def _attribute(name: str, attribute: Mapping[str, Json], *, lists: bool) -> Value:
    for kind in (*(("ints", "bools", "strings", "versions") if lists else ()), "int", "bool", "string", "version"):
        value = attribute.get(kind)
        if value is None:
            continue
        try:
            if kind == "versions":
                return [semver.parse(str(item)) for item in value] if isinstance(value, list) else []
            return semver.parse(str(value)) if kind == "version" else value
        except ValueError as error:
            raise errors.RunError(f"attribute {name}: parse semantic version: {error}") from error
    raise errors.RunError(f"attribute {name}: unsupported attribute value")
