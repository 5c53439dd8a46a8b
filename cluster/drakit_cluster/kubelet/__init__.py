"""The kubelet of one node, as far as dynamic resource allocation needs it: registration, prepare, unprepare, and the life of pods."""

from drakit_cluster.kubelet.kubelet import Kubelet, Place
from drakit_cluster.kubelet.timing import Timing

__all__ = ["Kubelet", "Place", "Timing"]
