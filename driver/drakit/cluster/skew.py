"""Components of other versions than the API server: which feature gates each one knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drakit.cluster.features import FeatureGates


@dataclass(frozen=True, kw_only=True)
class Skew:
    """Feature gates of components that differ from the API server's; ``kubelets`` by node. None, or no entry: the same."""

    scheduler: FeatureGates | None = None
    controllers: FeatureGates | None = None
    kubelets: Mapping[str, FeatureGates] = field(default_factory=dict)
