"""What the parts of one kubelet share."""

from dataclasses import dataclass

from drakit.cluster.api import Api
from drakit.cluster.kubelet.pod_health import PodHealth
from drakit.cluster.kubelet.preparation import Preparation
from drakit.cluster.kubelet.timing import Timing
from drakit.cluster.recorder import Recorder
from drakit.cluster.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class Services:
    """The API with the kubelet's own identity, and the services of the node."""

    api: Api
    recorder: Recorder
    preparation: Preparation
    health: PodHealth
    runtime: Runtime
    timing: Timing
