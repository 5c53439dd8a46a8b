"""What rules look at beside the objects: feature gates, and a compiler of expressions.

The device selectors' own compiler, in the form in which validation asks it.
"""

from dataclasses import dataclass, field
from typing import Protocol

from drakit_cluster import cel as selectors
from drakit_cluster.objects import features
from drakit_cluster.objects.features import FeatureGates


class Expressions(Protocol):
    """Compiles device selectors."""

    def worst_case(self, expression: str, *, stored: bool) -> int:
        """Return what an evaluation can cost at most; raise :class:`drakit_cluster.objects.ports.SelectorError` if it does not compile.

        ``stored`` expressions may use what only newer servers offer to new ones.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Context:
    """The surroundings of one validation. Without ``expressions``, selectors are only measured."""

    gates: FeatureGates = field(default_factory=FeatureGates)
    expressions: Expressions | None = None


class SelectorCompiler:
    """Compiles under one set of gates, each expression once. Safe to use from many threads."""

    def __init__(self, gates: features.FeatureGates) -> None:
        self._selectors = selectors.Selectors(gates)

    def worst_case(self, expression: str, *, stored: bool) -> int:
        """Return the highest cost of an evaluation; raise :class:`drakit_cluster.cel.CompileError`."""
        kind = selectors.EnvType.STORED if stored else selectors.EnvType.NEW
        return self._selectors.compile(expression, kind).max_cost
