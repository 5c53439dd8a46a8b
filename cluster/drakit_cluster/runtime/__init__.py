"""The container runtime of one node: reads CDI files as containerd does, and runs (or simulates) containers with their edits."""

from drakit_cluster.runtime.containers import Config, ContainerView, Identity, Mode, RuntimeFailureError, State
from drakit_cluster.runtime.edits import DeviceNode, Edits, Hook, Mount
from drakit_cluster.runtime.runtime import HookRunner, Runtime
from drakit_cluster.runtime.specs import SpecCache, UnresolvableError

__all__ = [
    "Config",
    "ContainerView",
    "DeviceNode",
    "Edits",
    "Hook",
    "HookRunner",
    "Identity",
    "Mode",
    "Mount",
    "Runtime",
    "RuntimeFailureError",
    "SpecCache",
    "State",
    "UnresolvableError",
]
