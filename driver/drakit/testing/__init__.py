"""The test kit for driver authors: a node in milliseconds, a whole cluster in a second, a crash at every line, and the conformance suite.

``Node``          run one driver on its own node: the real engine, journal and CDI files in a temporary folder; no sockets, no Kubernetes.
``Cluster``       run the local cluster with the driver as its kubelet plugin: real gRPC, real HTTPS, scheduler and container view.
``crash_points``  run something again and again, and die one line of the driver or the engine later each time.
``check_driver``  check all of the author's obligations; raises one error that lists the failures.
``python -m drakit.testing``  ``check`` from a shell, and ``conformance``, which checks any driver, in any language, over its sockets.
``FakeContext``   a ``drakit.DriverContext`` that records the driver's calls.

No test framework is needed. ``Cluster`` needs the extra ``drakit[cluster]``.
"""

from drakit.core.claim import AllocationResult, Claim, Listed, Outcome, PreparedDevice
from drakit.core.lifecycle import Entry, GrantEntry, State
from drakit.testing.builders import claim, device_class, pod, request
from drakit.testing.checking import CheckError, check_driver
from drakit.testing.cluster import Cluster
from drakit.testing.crashing import Crash, CrashPoint, Death, crash_points
from drakit.testing.fake_context import FakeContext
from drakit.testing.node import Claims, ContainerView, DriverFactory, DriverReports, Node, RefusedError
from drakit.testing.report import Check, Report

__all__ = [
    "AllocationResult",
    "Check",
    "CheckError",
    "Claim",
    "Claims",
    "Cluster",
    "ContainerView",
    "Crash",
    "CrashPoint",
    "Death",
    "DriverFactory",
    "DriverReports",
    "Entry",
    "FakeContext",
    "GrantEntry",
    "Listed",
    "Node",
    "Outcome",
    "PreparedDevice",
    "RefusedError",
    "Report",
    "State",
    "check_driver",
    "claim",
    "crash_points",
    "device_class",
    "pod",
    "request",
]
