"""Which types fit which: assignability with type parameters (the rules of the CEL language definition, "Type checking")."""

from collections.abc import Iterable

from drakit_cluster.cel.types import celtypes
from drakit_cluster.cel.types.celtypes import Kind, Type

Bindings = dict[Type, Type]
"""What each type parameter stands for so far."""

_NULLABLE = frozenset({Kind.NULL, Kind.DURATION, Kind.TIMESTAMP, Kind.OPAQUE, Kind.STRUCT})
_COMPOUND = frozenset({Kind.LIST, Kind.MAP, Kind.OPAQUE})


def assign_all(bindings: Bindings, given: Iterable[Type], wanted: Iterable[Type]) -> Bindings | None:
    """The bindings under which each given type may stand where the wanted one is, None if there are none."""
    extended = dict(bindings)
    given, wanted = tuple(given), tuple(wanted)
    if len(given) != len(wanted):
        return None
    for one, other in zip(given, wanted, strict=True):
        if not _assignable(extended, one, other):
            return None
    return extended


def most_general(first: Type, second: Type) -> Type:
    """The less specific of two types that unify."""
    return first if _less_specific(first, second) else second


def substitute(bindings: Bindings, value: Type, *, unbound: Type | None = None) -> Type:
    """The type with its parameters replaced; those without a binding by `unbound`, where that is given."""
    if value in bindings:
        return substitute(bindings, bindings[value], unbound=unbound)
    if value.kind is Kind.PARAM:
        return value if unbound is None else unbound
    if not value.parameters:
        return value
    inner = tuple(substitute(bindings, parameter, unbound=unbound) for parameter in value.parameters)
    return Type(value.kind, value.name, inner)


def _assignable(bindings: Bindings, given: Type, wanted: Type) -> bool:
    if given == wanted:
        return True
    if wanted.kind is Kind.PARAM:
        verdict = _bind(bindings, wanted, given)
        if verdict is not None:
            return verdict
    if given.kind is Kind.PARAM:
        return _bind(bindings, given, wanted) is True
    if given.wild or wanted.wild:
        return True
    if given.kind is Kind.NULL:
        return wanted.kind in _NULLABLE
    return _same_shape(bindings, given, wanted)


def _same_shape(bindings: Bindings, given: Type, wanted: Type) -> bool:
    if given.kind is not wanted.kind or given.name != wanted.name:
        return False
    if given.kind not in _COMPOUND:
        return True
    pairs = zip(given.parameters, wanted.parameters, strict=True)
    return all(_assignable(bindings, one, other) for one, other in pairs)


def _bind(bindings: Bindings, parameter: Type, value: Type) -> bool | None:
    """Let the parameter stand for the value: True if it can, False if it stands for something else, None if unsettled."""
    known = bindings.get(parameter)
    if known is not None:
        if known == value:
            return True
        if _assignable(bindings, value, known):
            bindings[parameter] = most_general(value, known)
            return True
        return False
    if _occurs(bindings, parameter, value):
        return None
    bindings[parameter] = value
    return True


def _occurs(bindings: Bindings, parameter: Type, value: Type) -> bool:
    if parameter == value:
        return True
    if value.kind is Kind.PARAM:
        known = bindings.get(value)
        return known is not None and _occurs(bindings, parameter, known)
    return any(_occurs(bindings, parameter, inner) for inner in value.parameters)


def _less_specific(first: Type, second: Type) -> bool:
    if first.wild or first.kind is Kind.PARAM:
        return first is not celtypes.ERROR
    if second.wild or second.kind is Kind.PARAM or first.kind is not second.kind or first.name != second.name:
        return False
    if first.kind is Kind.TYPE:
        return True
    return all(_less_specific(one, other) for one, other in zip(first.parameters, second.parameters, strict=True))
