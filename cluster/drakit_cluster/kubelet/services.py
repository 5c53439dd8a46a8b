"""What the parts of one kubelet share."""

from dataclasses import dataclass

from drakit_cluster.client.api import Api
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.kubelet.pods.pod_status import PodHealth
from drakit_cluster.kubelet.pods.preparation import Preparation
from drakit_cluster.kubelet.timing import Timing
from drakit_cluster.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class Services:
    """The API with the kubelet's own identity, and the services of the node."""

    api: Api
    recorder: Recorder
    preparation: Preparation
    health: PodHealth
    runtime: Runtime
    timing: Timing
