"""The worst-case cost of an expression, as Kubernetes estimates it when an object with a selector is created.

Source: cel-go's cost estimator and that of k8s.io/apiserver's CEL libraries, with the maximum sizes of a device. Costs and
sizes are upper bounds; an unbounded size is `charges.MOST`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from drakit_cluster.cel import charges
from drakit_cluster.cel.charges import MOST, allocating, reading
from drakit_cluster.cel.functions import lists
from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Expr, Literal
from drakit_cluster.cel.types import celtypes, checker
from drakit_cluster.cel.types.celtypes import Kind, Type

_FIXED_SIZE_KINDS: Final = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})
_SELECTED: Final = frozenset({Kind.MAP, Kind.STRUCT, Kind.PARAM})
_ADDRESS: Final = 16
"""The bytes of an address."""

Path = tuple[str, ...]
"""The way from a variable to a value: names of fields, `@keys`, `@values`, `@items`, `@indices`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A part of a device: its maximum size, and the parts below it."""

    most: int
    keys: "_Shape | None" = None
    values: "_Shape | None" = None


_ATTRIBUTE: Final = _Shape(most=64)


def _by_domain(value: _Shape) -> _Shape:
    """Return the shape of a map from domains to values by id."""
    return _Shape(most=32, keys=_Shape(most=63), values=_Shape(most=32, keys=_Shape(most=32), values=value))


_FIELDS: Final = {
    "driver": _Shape(most=63),
    "allowMultipleAllocations": _Shape(most=1),
    "attributes": _by_domain(_ATTRIBUTE),
    "capacity": _by_domain(_Shape(most=0)),
}


def _device_size(path: Path) -> int | None:
    """Return the maximum size of the value at the path; None if the path is not part of a device."""
    if path[:1] != ("device",):
        return None
    if len(path) == 1:
        return 0
    shape = _FIELDS.get(path[1])
    for step in path[2:]:
        if shape is None:
            return None
        below = shape.values if step in ("@items", "@values") or shape.values is _ATTRIBUTE else None
        shape = shape.keys if step == "@keys" else below
    return None if shape is None else shape.most


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """An argument or receiver: its path, type and size. An unknown size is MOST."""

    path: Path
    type: Type
    expr: Expr
    size: int

    @property
    def element_size(self) -> int:
        return _or_most(_device_size((*self.path, "@items")))

    def literal_count(self, otherwise: int) -> int:
        """Return the value of a literal that counts something."""
        value = self.expr.value if isinstance(self.expr, Literal) else None
        return int(value) if isinstance(value, int) and value >= 0 else otherwise


def _or_most(size: int | None) -> int:
    return MOST if size is None else size


def _traverse(target: _Node, *_: _Node) -> int:
    """Return the cost of visiting every element once; strings and bytes are read."""
    if not target.type.parameters:
        return reading(target.size)
    text = target.type.parameters[0].kind in (Kind.STRING, Kind.BYTES)
    return target.size * (1 + (reading(target.element_size) if text else 0))


def _equals(left: _Node, right: _Node) -> int:
    """Return the cost of `==`; Kubernetes' own values compare at a fixed cost."""
    if left.type == right.type == celtypes.FORMAT:
        return reading(64)
    fixed = left.type == right.type and left.type in (celtypes.QUANTITY, celtypes.SEMVER, celtypes.IP, celtypes.CIDR)
    return 1 if fixed else charges.smaller(left.size, right.size)


def _contains_ip(_: _Node, other: _Node) -> int:
    return reading(2 * _ADDRESS) + (reading(other.size) if other.type.kind is Kind.STRING else 0)


def _sort(*args: _Node) -> int:
    element_type = args[-1].type.parameters[0] if args[-1].type.parameters else celtypes.DYN
    text = element_type.wild or element_type.kind in (Kind.STRING, Kind.BYTES)
    return allocating((2 + charges.TRAVERSAL * text) * min(args[-1].size ** 2, MOST))


def _slice_size(target: _Node, start: _Node, end: _Node) -> int:
    count = end.literal_count(target.size) - start.literal_count(0)
    return count if count >= 0 else MOST


def _join_size(target: _Node, *separator: _Node) -> int:
    gaps = separator[0].size * max(target.size - 1, 0) if separator else 0
    return target.size * target.element_size + gaps


def _replace_size(target: _Node, old: _Node, new: _Node, *_: _Node) -> int:
    """Return the size if the shortest replaceable text occurs as often as possible."""
    least = len(old.expr.value) if isinstance(old.expr, Literal) else 0
    if least == 0:
        return min(target.size + 1, MOST) * new.size + target.size
    return -(-target.size // least) * new.size if new.size > least else target.size


_COSTS: Final[dict[str, Callable[..., int]]] = {
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"], _traverse),
    **dict.fromkeys(["startsWith", "endsWith"], lambda _, part: reading(part.size)),
    "_==_": _equals,
    "containsIP": _contains_ip,
    "containsCIDR": lambda network, other: _contains_ip(network, other) + reading(_ADDRESS) + 1,
    "validate": lambda _, text: 32 * reading(text.size),
    "includes": lambda *_: lists.INCLUDES_MAX,
    "join": lambda *args: reading(_join_size(*args)),
    "slice": lambda *args: allocating(_slice_size(*args)),
    "lists.range": lambda count: allocating(count.literal_count(MOST)),
    "reverse": lambda target: allocating(target.size),
    "flatten": lambda target, *depth: allocating(min((depth[0].literal_count(MOST) if depth else 1) * target.size, MOST)),
    **dict.fromkeys(["sort", "@sortByAssociatedKeys"], _sort),
}
"""Worst-case costs of calls that differ from their cost by sizes."""
_RESULTS: Final[dict[str, Callable[..., int]]] = {
    **dict.fromkeys(["url", "lowerAscii", "upperAscii", "substring", "trim"], lambda target, *_: target.size),
    **dict.fromkeys(["find", "findAll", "reverse", "flatten", "string(bytes)"], lambda target, *_: target.size),
    "bytes(string)": lambda text: 4 * text.size,
    "strings.quote": lambda text: 2 * text.size + 2,
    **{f"_+_({kind},{kind})": lambda left, right: left.size + right.size for kind in ("string", "bytes", "list(A)")},
    "replace": _replace_size,
    "split": lambda target, _, *count: count[0].literal_count(target.size) if count else target.size,
    "join": _join_size,
    "slice": _slice_size,
    "lists.range": lambda count: count.literal_count(MOST),
    **dict.fromkeys(["distinct", "sort", "@sortByAssociatedKeys"], lambda *args: args[-1].size ** 2),
}
"""Maximum sizes of results, for calls that bound them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The contents of a list or map: sizes of its keys and of its values."""

    is_list: bool
    key: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    path: Path
    size: int | None = None
    entries: _Entries | None = None


def worst_case(checked: checker.Checked) -> int:
    """Return the most that the expression can cost."""
    return min(_Coster(checked).cost(checked.root), MOST)


class _Coster:
    def __init__(self, checked: checker.Checked) -> None:
        self._checked = checked
        self._paths: dict[Expr, Path] = {}
        self._sizes: dict[Expr, int] = {}
        self._entries: dict[Expr, _Entries] = {}
        self._scopes: list[dict[str, _Variable]] = []

    def cost(self, expr: Expr) -> int:
        return _KINDS[type(expr)](self, expr)

    def literal(self, _: Literal) -> int:
        return 0

    def ident(self, expr: tree.Ident) -> int:
        variable = self._variable(expr)
        self._paths[expr] = variable.path if variable is not None else (expr.name,)
        return 1

    def select(self, expr: tree.Select) -> int:
        if expr in self._checked.names:
            return 1
        total = self.cost(expr.operand)
        if expr.test_only:
            return total
        self._paths[expr] = (*self._path(expr.operand), expr.field)
        return total + (self._checked.types[expr.operand].kind in _SELECTED)

    def call(self, expr: tree.Call) -> int:
        receiver = () if expr.target is None or expr in self._checked.names else (expr.target,)
        args = (*receiver, *expr.args)
        costs = [self.cost(arg) for arg in args]
        if expr.function == "_?_:_":
            self._union(expr, expr.args[1], expr.args[2])
            self._resize(expr, max(self._node(arg).size for arg in expr.args[1:]))
            return costs[0] + max(costs[1:])
        total = sum(costs)
        if expr.function in ("_&&_", "_||_"):
            return total
        if expr.function == "dyn":
            self._copy(expr, expr.args[0])
            return total + 1
        nodes = [self._node(arg) for arg in args]
        function = self._checked.names.get(expr, expr.function.removeprefix("."))
        return total + max(self._overload(expr, function, overload, nodes) for overload in self._checked.overloads.get(expr, ("",)))

    def _overload(self, expr: tree.Call, function: str, overload: str, nodes: list[_Node]) -> int:
        """Return the cost of one possible overload, and record the maximum size of its result."""
        result = _RESULTS.get(function) or _RESULTS.get(overload)
        size = None if result is None else result(*nodes)
        if overload in ("_[_](list(A),int)", "_[_](map(A,B),A)"):
            self._paths[expr] = (*self._path(expr.args[0]), "@items" if "list" in overload else "@values")
            entries = self._entries_of(expr.args[0])
            size = None if entries is None else entries.value
        elif function == "_+_" and result is not None:
            self._union(expr, *expr.args)
        self._resize(expr, self._size(expr) if size is None else max(size, self._sizes.get(expr, 0)))
        if function in _COSTS:
            return _COSTS[function](*nodes)
        by_sizes = charges.BY_SIZES.get(function) or charges.BY_SIZES.get(overload)
        return 1 if by_sizes is None else by_sizes(*(node.size for node in nodes))

    def _resize(self, expr: Expr, size: int | None) -> None:
        if size is not None:
            self._sizes[expr] = min(size, MOST)

    def _union(self, expr: Expr, left: Expr, right: Expr) -> None:
        """Record that the result may hold the contents of either side."""
        first, second = self._entries_of(left), self._entries_of(right)
        if first is not None and second is not None:
            key, value = max(first.key, second.key), max(first.value, second.value)
            self._entries[expr] = _Entries(is_list=first.is_list, key=key, value=value)

    def list(self, expr: tree.ListExpr) -> int:
        total = charges.LIST + sum(map(self.cost, expr.elements))
        self._entries[expr] = _Entries(is_list=True, key=1, value=self._largest(expr.elements))
        return total

    def map(self, expr: tree.MapExpr) -> int:
        total = charges.MAP + sum(map(self.cost, tree.children(expr)))
        self._entries[expr] = _Entries(is_list=False, key=self._largest(expr.keys), value=self._largest(expr.values))
        return total

    def _largest(self, exprs: Iterable[Expr]) -> int:
        return max((_or_most(self._size(expr)) for expr in exprs), default=0)

    def comprehension(self, expr: tree.Comprehension) -> int:
        total = self.cost(expr.range) + self.cost(expr.init)
        bound = _Variable(path=self._path(expr.init), size=self._size(expr.init), entries=self._entries_of(expr.init))
        self._scopes.append({expr.accu: bound})
        iteration_cost = 0
        if not expr.is_bind:
            self._scopes.append(self._loop_variables(expr))
            iteration_cost = self.cost(expr.condition) + self.cost(expr.step)
            self._scopes.pop()
        total += self.cost(expr.result)
        self._scopes.pop()
        count = _or_most(self._size(expr.range))
        if expr.is_bind:
            self._copy(expr, expr.result)
        elif isinstance(expr.init, Literal):
            self._resize(expr, self._size(expr.init))
        elif isinstance(expr.init, (tree.ListExpr, tree.MapExpr)):
            self._resize(expr, count)
            if (entries := self._entries_of(expr.step)) is not None:
                self._entries[expr] = entries
        return min(total + count * iteration_cost, MOST)

    def _loop_variables(self, expr: tree.Comprehension) -> dict[str, _Variable]:
        entries = self._entries_of(expr.range)
        is_list = entries.is_list if entries is not None else self._checked.types[expr.range].kind is Kind.LIST
        base = self._path(expr.range)
        key = _Variable(path=(*base, "@indices" if is_list else "@keys"), size=entries.key if entries else None)
        value = _Variable(path=(*base, "@items" if is_list else "@values"), size=entries.value if entries else None)
        if expr.second is not None:
            return {expr.first: key, expr.second: value}
        return {expr.first: value if is_list else key}

    def _variable(self, expr: Expr) -> _Variable | None:
        name = expr.name if isinstance(expr, tree.Ident) else ""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _path(self, expr: Expr) -> Path:
        variable = self._variable(expr)
        return variable.path if variable is not None else self._paths.get(expr, ())

    def _node(self, expr: Expr) -> _Node:
        return _Node(path=self._path(expr), type=self._checked.types[expr], expr=expr, size=_or_most(self._size(expr)))

    def _copy(self, expr: Expr, source: Expr) -> None:
        self._resize(expr, self._size(source))
        if (entries := self._entries_of(source)) is not None:
            self._entries[expr] = entries

    def _size(self, expr: Expr) -> int | None:
        for size in (self._sizes.get(expr), _literal_size(expr), _device_size(self._path(expr))):
            if size is not None:
                return size
        if _fixed_size(self._checked.types[expr]):
            return 1
        variable = self._variable(expr)
        return None if variable is None else variable.size

    def _entries_of(self, expr: Expr) -> _Entries | None:
        entries, variable = self._entries.get(expr), self._variable(expr)
        return variable.entries if entries is None and variable is not None else entries


def _literal_size(expr: Expr) -> int | None:
    match expr:
        case Literal(value=value):
            return len(value) if isinstance(value, (str, bytes)) else 1
        case tree.ListExpr(elements=items) | tree.MapExpr(keys=items):
            return len(items)
    return None


def _fixed_size(value_type: Type) -> bool:
    inner = value_type.optional_value
    return _fixed_size(inner) if inner is not None else value_type.kind in _FIXED_SIZE_KINDS


_KINDS: Final[dict[type[Expr], Callable[[_Coster, Any], int]]] = {
    Literal: _Coster.literal,
    tree.Ident: _Coster.ident,
    tree.Select: _Coster.select,
    tree.Call: _Coster.call,
    tree.ListExpr: _Coster.list,
    tree.MapExpr: _Coster.map,
    tree.Comprehension: _Coster.comprehension,
}
