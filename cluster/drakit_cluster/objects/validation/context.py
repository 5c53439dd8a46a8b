"""What rules look at beside the objects: feature gates, and a compiler of expressions."""

from dataclasses import dataclass, field
from typing import Protocol

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
