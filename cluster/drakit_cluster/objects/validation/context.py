"""The context of validation rules: feature gates, and the compiler of expressions."""

from dataclasses import dataclass, field

from drakit_cluster import cel
from drakit_cluster.objects.features import FeatureGates


@dataclass(frozen=True, kw_only=True)
class Context:
    """The context of one validation. Without ``selectors``, only the length of expressions is checked."""

    gates: FeatureGates = field(default_factory=FeatureGates)
    selectors: cel.Selectors | None = None
