"""What single components of a cluster do in their own way: older versions beside newer ones, and shorter waits."""

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.scheduling.allocator.known_errors import NONE, KnownErrors
from drakit_cluster.scheduling.scheduler import BINDING_SECONDS


@dataclass(frozen=True, kw_only=True)
class Components:
    """Feature gates of components that differ from the API server's, ``kubelets`` by node; None, or no entry, means the same.

    ``binding_timeout`` is how many seconds the scheduler waits for the binding conditions of devices; ``known_errors`` are those of a
    Kubernetes version, which it repeats. ``state`` is a file in which the API server keeps its objects: a new cluster with the same file
    goes on with them, and its nodes start as after a reboot. None: nothing is kept.
    """

    scheduler: FeatureGates | None = None
    controllers: FeatureGates | None = None
    kubelets: Mapping[str, FeatureGates] = field(default_factory=dict)
    binding_timeout: float = BINDING_SECONDS
    state: pathlib.Path | None = None
    known_errors: KnownErrors = NONE

    def __post_init__(self) -> None:
        if self.binding_timeout <= 0:
            raise ValueError(f"binding_timeout: must be more than 0 seconds, not {self.binding_timeout:g}")
