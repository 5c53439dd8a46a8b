"""Pods that a driver runs beside itself on its own node, so that the end of its own container does not end them.

The cluster's administrator writes the pod as a template. A driver chooses a name, labels, annotations and environment variables only.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Protocol


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """A pod that should run. ``environment`` is set in its only container."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Phase(enum.Enum):
    """What the API server knows of a pod.

    STARTING until its container has run, FAILING while one that ended waits to be started again, ENDING once the pod was deleted, OVER when the
    kubelet will never run it again.
    """

    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    ENDING = "ending"
    OVER = "over"


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """A pod's phase, and why its container does not run."""

    phase: Phase
    message: str = ""


class Pods(Protocol):
    """The pods of one driver on its node (``kube.pods.ApiPods``). Every call is one or few requests with a deadline; all raise ApiError."""

    @property
    def node(self) -> str:
        """The node's name; pods of other nodes may have any name that is not used here."""

    def create(self, pod: Wanted) -> None:
        """Create the pod from the template; a pod of that name that is there already is left as it is."""

    def state(self, name: str) -> State | None:
        """Return the state of a pod, None where there is no pod of that name."""

    def delete(self, name: str) -> None:
        """Delete a pod; one that is gone already is success. Its container ends within seconds, or is killed."""

    def names(self) -> Collection[str]:
        """Return the names of all pods that this driver created on this node, those that are being deleted left out."""
