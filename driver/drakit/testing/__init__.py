"""The test kit for driver authors: a node in milliseconds, a whole cluster in a second, a crash at every line, and the conformance suite.

``Node``          one driver on a node of its own: the real engine, journal and CDI files in a temporary folder; no sockets, no Kubernetes.
``Cluster``       the local cluster with the driver as its kubelet plugin: real gRPC, real HTTPS, scheduler and container view.
``crash_points``  run something and die at every line of the driver and of the engine, one after the other.
``check_driver``  everything a driver owes drakit, checked on yours; raises one error that lists what is wrong.
``FakeContext``      a ``drakit.DriverContext`` that remembers what it was told.

Needs no test framework; ``Cluster`` needs the extra ``drakit[cluster]``.
"""

from drakit.testing.builders import claim, device_class, pod
from drakit.testing.checking import Check, CheckError, Report, check_driver
from drakit.testing.cluster import Cluster
from drakit.testing.crashing import Crash, CrashPoint, Death, crash_points
from drakit.testing.fake_context import FakeContext
from drakit.testing.node import ContainerView, DriverReports, Node, RefusedError

__all__ = [
    "Check",
    "CheckError",
    "Cluster",
    "ContainerView",
    "Crash",
    "CrashPoint",
    "Death",
    "DriverReports",
    "FakeContext",
    "Node",
    "RefusedError",
    "Report",
    "check_driver",
    "claim",
    "crash_points",
    "device_class",
    "pod",
]
