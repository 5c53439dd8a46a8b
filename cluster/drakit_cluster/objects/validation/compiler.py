"""The device selectors' own compiler, in the form in which validation asks it."""

from drakit_cluster import cel as selectors
from drakit_cluster.objects import features


class SelectorCompiler:
    """Compiles under one set of gates, each expression once. Safe to use from many threads."""

    def __init__(self, gates: features.FeatureGates) -> None:
        self._selectors = selectors.Selectors(gates)

    def worst_case(self, expression: str, *, stored: bool) -> int:
        """Return the highest cost of an evaluation; raise :class:`drakit_cluster.cel.CompileError`."""
        kind = selectors.EnvType.STORED if stored else selectors.EnvType.NEW
        return self._selectors.compile(expression, kind).max_cost
