"""The context of validation rules: feature gates, and a compiler of device selectors."""

from dataclasses import dataclass, field

from drakit_cluster import cel
from drakit_cluster.objects.features import FeatureGates


class SelectorCompiler:
    """Compiles under one set of gates, each expression once. Safe to use from many threads."""

    def __init__(self, gates: FeatureGates) -> None:
        self._selectors = cel.Selectors(gates)

    def worst_case(self, expression: str, *, stored: bool, purpose: cel.Purpose = cel.Purpose.SELECTOR) -> int:
        """Return the highest cost of an evaluation; raise :class:`drakit_cluster.cel.CompileError`.

        ``stored`` expressions may use features that new expressions get only on newer servers.
        """
        return self._selectors.compile(expression, cel.EnvType.STORED if stored else cel.EnvType.NEW, purpose).max_cost


@dataclass(frozen=True, kw_only=True)
class Context:
    """The context of one validation. Without ``expressions``, only the length of selectors is checked."""

    gates: FeatureGates = field(default_factory=FeatureGates)
    expressions: SelectorCompiler | None = None
