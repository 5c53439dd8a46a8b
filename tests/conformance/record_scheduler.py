"""Record what a real kube-scheduler decides: ``PYTHONPATH=tests python -m conformance.record_scheduler SCENARIO --kubeconfig FILE --log FILE``.

The cluster needs an API server and kube-scheduler, and no nodes or slices of its own: nodes are made by hand, and no kubelet and no controller
manager must run. ``SCENARIO --configuration`` prints the scheduler's configuration; start it with that, with ``--v=2 --vmodule=schedule_one=10``, and
with its log in the file that ``--log`` names: the log says which nodes passed the filters. Pods go one after another; each is bound or refused
before the next one, and one that is refused is deleted at once. The recording is written to ``cases/scheduler``, also of a run that is ended early.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from conformance import scheduler_recording as recording
from conformance import scheduler_scenarios as scenarios
from conformance.scheduler_recording import Ended, Event, Placed, Recording, Refused, Setting
from conformance.scheduler_scenarios import Scenario, State
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e.api import Api

CASES = pathlib.Path(__file__).parent / "cases" / "scheduler"
NAMESPACE = "drakit-recording"
_WEIGHT_MAX = 100
_SETTLED_AFTER = 3.0
_SCORED = re.compile(r'"Calculated node\'s final score for pod" pod="[^"]*/([^"/]+)" node="([^"]+)"')


def configuration(nodes: Sequence[str]) -> Object:
    """Return a scheduler's configuration with both profiles. In ``first-fit`` the only score prefers nodes in the order of their names."""
    if len(nodes) > _WEIGHT_MAX:
        raise ValueError(f"weights rank at most {_WEIGHT_MAX} nodes, not {len(nodes)}")
    terms: list[Object] = [
        {
            "weight": _WEIGHT_MAX - rank,
            "preference": {"matchExpressions": [{"key": recording.HOSTNAME, "operator": "In", "values": [name]}]},
        }
        for rank, name in enumerate(sorted(nodes))
    ]
    affinity: Object = {"preferredDuringSchedulingIgnoredDuringExecution": json_types.from_objects(terms)}
    first_fit: Object = {
        "schedulerName": scenarios.FIRST_FIT,
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity", "weight": 1}]}},
        "pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": affinity}}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "SCHEDULER.kubeconfig", "qps": 200, "burst": 400},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": scenarios.STOCK}, first_fit],
    }


class _Log:
    """The part of the scheduler's log that was not read so far."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._offset = path.stat().st_size

    def scored(self, pod: str) -> list[str]:
        """Return the nodes that were scored for a pod."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        self._offset += len(content)
        return [match[2] for match in _SCORED.finditer(content.decode()) if match[1] == pod]


class Recorder:
    """Plays one scenario on a cluster. Without ``log`` it does not know which nodes were feasible.

    ``settle`` are seconds after a pod's end, ``start`` those that the scheduler has to read nodes and slices.
    """

    def __init__(self, api: Api, scenario: Scenario, log: pathlib.Path | None, *, settle: float, start: float = _SETTLED_AFTER) -> None:
        self._api = api
        self._scenario = scenario
        self._log = _Log(log) if log else None
        self._settle = settle
        self._start = start
        self._claims: dict[str, list[str]] = {}
        self._names = (f"p{number:04}" for number in itertools.count())

    def prepare(self) -> None:
        """Create nodes, classes and slices. Raise SystemExit where the cluster has others, or drops a field."""
        setting = self._scenario.setting
        if self._api.list("Node") or self._api.list("ResourceSlice"):
            raise SystemExit("the cluster has nodes or slices already, which would change what the scheduler decides")
        if self._api.find("Namespace", NAMESPACE) is None:
            labels: Object = {"resource.kubernetes.io/admin-access": "true"}
            self._api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
        for name, device_class in setting.classes.items():
            self._api.create(_object("resource.k8s.io/v1", "DeviceClass", name, spec=device_class["spec"]))
        for entry in setting.slices():
            stored = self._api.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **entry})
            if lost := _lost(json_types.mapping(entry, "spec"), json_types.mapping(stored, "spec")):
                raise SystemExit(f"the API server dropped {lost}: feature gates {', '.join(setting.gates)} must be on")
        for name in setting.nodes:
            self._api.create(_node(name))
        time.sleep(self._start)

    def play(self) -> Iterator[Event]:
        """Yield what becomes of every step."""
        state = State()
        for step in self._scenario.steps(state):
            if isinstance(step, scenarios.End):
                self._release(step.pod)
                state.running.remove(step.pod)
                yield Ended(pod=step.pod)
                continue
            event = self._ask(step.template)
            if isinstance(event, Placed):
                state.running.append(event.pod)
            else:
                state.refused += 1
                self._release(event.pod)
            yield event

    def clean(self) -> None:
        """Delete what was created, but for the namespace."""
        for pod in list(self._claims):
            self._release(pod, settle=False)
        for entry in self._scenario.setting.slices():
            self._api.delete("ResourceSlice", json_types.text(entry, "metadata", "name"))
        for name in self._scenario.setting.classes:
            self._api.delete("DeviceClass", name)
        for name in self._scenario.setting.nodes:
            self._api.delete("Node", name)

    def _ask(self, template: str) -> Placed | Refused:
        """Create a pod with its claims and wait until it is bound or refused."""
        pod = next(self._names)
        specs = self._scenario.setting.templates[template]
        claims = self._claims[pod] = [f"{pod}-{number}" for number in range(len(specs))]
        for name, spec in zip(claims, specs, strict=True):
            self._api.create(_object("resource.k8s.io/v1", "ResourceClaim", name, NAMESPACE, spec=spec))
        self._api.create(_pod(pod, claims, self._scenario.setting.profile))
        node, message = self._api.wait(f"the decision about pod {pod}", lambda: self._decision(pod))
        if message:
            return Refused(pod=pod, template=template, message=message)
        allocations = [json_types.mapping(self._api.get("ResourceClaim", name, NAMESPACE), "status", "allocation") for name in claims]
        results = [result for allocation in allocations for result in recording.results_of(allocation)]
        feasible = (sorted(self._log.scored(pod)) if self._log else []) or [node]
        return Placed(pod=pod, template=template, node=node, results=results, feasible=feasible)

    def _decision(self, pod: str) -> tuple[str, str] | None:
        """Return the node of a pod, or why it has none; None where neither is known yet."""
        found = self._api.get("Pod", pod, NAMESPACE)
        if node := json_types.text(found, "spec", "nodeName"):
            return node, ""
        for condition in json_types.objects(found, "status", "conditions"):
            if json_types.text(condition, "type") == "PodScheduled" and json_types.text(condition, "status") == "False":
                if json_types.text(condition, "reason") != "Unschedulable":
                    raise AssertionError(f"pod {pod}: {json_types.text(condition, 'message')}")
                return "", json_types.text(condition, "message")
        return None

    def _release(self, pod: str, *, settle: bool = True) -> None:
        """Delete a pod and its claims, and do what the controller manager does for them."""
        self._api.delete("Pod", pod, NAMESPACE, grace=0)
        for name in self._claims.pop(pod):
            self._api.merge("ResourceClaim", f"{name}/status", {"status": {"allocation": None, "reservedFor": None}}, NAMESPACE)
            self._api.merge("ResourceClaim", name, {"metadata": {"finalizers": None}}, NAMESPACE)
            self._api.delete("ResourceClaim", name, NAMESPACE)
        if settle:
            time.sleep(self._settle)


def _object(version: str, kind: str, name: str, namespace: str = "", **fields: object) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    found: Object = json.loads(json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **fields}))
    return found


def _node(name: str) -> Object:
    room = {"cpu": "1000", "memory": "1000Gi", "pods": "10000", "ephemeral-storage": "100Gi"}
    ready = {"type": "Ready", "status": "True", "reason": "Made", "message": "made by hand"}
    node = _object("v1", "Node", name, status={"capacity": room, "allocatable": room, "conditions": [ready]})
    json_types.mapping(node, "metadata")["labels"] = {recording.HOSTNAME: name}
    return node


def _pod(name: str, claims: Sequence[str], scheduler: str) -> Object:
    uses = [{"name": claim} for claim in claims]
    container = {"name": "main", "image": "none", "resources": {"claims": uses}}
    refs = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    spec = {"schedulerName": scheduler, "containers": [container], "resourceClaims": refs, "automountServiceAccountToken": False}
    return _object("v1", "Pod", name, NAMESPACE, spec=spec)


def _lost(sent: object, stored: object) -> str:
    """Return the path of a field that was sent and not stored."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, value in sent.items():
            if name not in stored:
                return f"{name}"
            if inner := _lost(value, stored[name]):
                return f"{name}.{inner}"
    if isinstance(sent, list) and isinstance(stored, list):
        return next((f"{at}.{inner}" for at, pair in enumerate(zip(sent, stored, strict=True)) if (inner := _lost(*pair))), "")
    return ""


def record(name: str, api: Api, log: pathlib.Path, *, settle: float) -> pathlib.Path:
    """Record one scenario and return the file."""
    scenario = scenarios.SCENARIOS[name]()
    recorder = Recorder(api, scenario, log, settle=settle)
    recorder.prepare()
    events: list[Event] = []
    try:
        for event in recorder.play():
            events.append(event)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{name}: {len(events)} events")
    finally:
        recorder.clean()
        path = CASES / f"{name}.jsonl.gz"
        _write(path, scenario.setting, api.version(), events)
    return path


def _write(path: pathlib.Path, setting: Setting, version: str, events: Sequence[Event]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    recording.write(path, Recording(setting=dataclasses.replace(setting, kubernetes=version), events=events))
    counts = {kind.__name__.lower(): sum(type(event) is kind for event in events) for kind in (Placed, Refused, Ended)}
    sys.stdout.write(f"{path.name}: {version}, {', '.join(f'{count} {kind}' for kind, count in counts.items())}\n")


def main() -> None:
    """Record the scenarios that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="+", choices=sorted(scenarios.SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--kubeconfig", type=pathlib.Path, default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--log", type=pathlib.Path, help="the scheduler's log")
    parser.add_argument("--settle", type=float, default=0.2, help="seconds that the scheduler has to see that a claim is gone")
    parser.add_argument("--configuration", action="store_true", help="print the scheduler's configuration and end")
    given = parser.parse_args()
    if given.configuration:
        (name,) = given.scenarios
        json.dump(configuration(scenarios.SCENARIOS[name]().setting.nodes), sys.stdout, indent=1)
        return
    if given.kubeconfig is None or given.log is None:
        parser.error("--kubeconfig and --log are needed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))
    api = Api.of(pathlib.Path(given.kubeconfig).absolute(), seconds=60, pause=0.02)
    for name in given.scenarios:
        record(name, api, given.log, settle=given.settle)


if __name__ == "__main__":
    main()
