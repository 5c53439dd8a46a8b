"""Pods of MPS daemons at the local API server, with an overlay's manifests: what the driver needs works, and a stolen token can do no more."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit.core import errors as core_errors
from drakit.core import ports
from drakit.kube import client as kube_client
from drakit.kube import pods as kube_pods
from drakit_cluster.access import users
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Object
from fakes import manifests

pytestmark = manifests.needs_kubectl
KINDS = {resource.kind: resource for resource in resources.ALL}
POD, TEMPLATE = KINDS["Pod"], KINDS["PodTemplate"]
ACCOUNT = f"system:serviceaccount:{manifests.NAMESPACE}:drakit-gpu"
NAME, SECOND = "drakit-mps-0123456789abcdef", "drakit-mps-1111111111111111"
FOLDER = "/var/lib/kubelet/plugins/gpu.drakit.dev/mps/0123456789abcdef"
WANTED = ports.PodRequest(
    name=NAME,
    labels={"app.kubernetes.io/component": "mps-daemon", "drakit.dev/claim-uid": "67c1cba1-aaab-58cb-bb24-8e2024acd678"},
    annotations={"drakit.dev/claim": "default/a"},
    environment={"MPS_FOLDER": FOLDER},
)


@pytest.fixture(params=["mock", "gpu"])
def server(request: pytest.FixtureRequest) -> Iterator[apiserver.ApiServer]:
    """The server has the overlay's roles, policies and PodTemplate, and two nodes."""
    with apiserver.ApiServer(registry.Registry()) as running:
        for item in manifests.overlay(request.param):
            if item["kind"] != "DaemonSet":
                running.registry.create(KINDS[item["kind"]], copy.deepcopy(item))
        template = next(item["spec"]["template"] for item in manifests.overlay(request.param) if item["kind"] == "DaemonSet")
        for node in ("n1", "n2"):
            running.registry.create(resources.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
            running.registry.create(POD, driver_pod(node, template))
        yield running


def driver_pod(node: str, template: Any) -> Object:
    labels: Object = {"app.kubernetes.io/name": "drakit", "app.kubernetes.io/component": "gpu"}
    metadata: Object = {"name": f"drakit-gpu-{node}", "namespace": manifests.NAMESPACE, "labels": labels}
    security = template["spec"]["containers"][0]["securityContext"]
    container: Object = {"name": "driver", "image": f"registry.example/drakit:{node}", "securityContext": security}
    spec: Object = {"nodeName": node, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def token(server: apiserver.ApiServer, node: str = "n1", pod: str = "drakit-gpu-n1") -> str:
    return server.issue_token(
        ACCOUNT, ("system:masters",), extra={users.NODE_NAME: (node,), "authentication.kubernetes.io/pod-name": (pod,)}
    )


def thief(server: apiserver.ApiServer, node: str = "n1") -> client.ApiClient:
    return client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token(server, node))


@pytest.fixture
def pods(server: apiserver.ApiServer, tmp_path: Any) -> Iterator[kube_pods.ApiPods]:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(server.ca_pem)
    api = kube_client.connect_to(server.url, token=token(server), ca_file=ca)
    own: Any = server.registry.get(POD, "drakit-gpu-n1", namespace=manifests.NAMESPACE)
    uid = own["metadata"]["uid"]
    yield kube_pods.ApiPods(api, namespace=manifests.NAMESPACE, template="drakit-mps", node="n1", driver="gpu.drakit.dev", own_uid=uid)
    api.close()


def stored(server: apiserver.ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.registry.get(POD, NAME, namespace=manifests.NAMESPACE)
    return found


def test_the_driver_creates_finds_and_deletes_its_pods(server: apiserver.ApiServer, pods: kube_pods.ApiPods) -> None:
    assert (pods.state(NAME), set(pods.names())) == (None, set())
    pods.create(WANTED)
    pods.create(WANTED)
    assert set(pods.names()) == {NAME}
    pod = stored(server)
    template: Any = server.registry.get(TEMPLATE, "drakit-mps", namespace=manifests.NAMESPACE)
    node: Any = server.registry.get(resources.NODE, "n1")
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["spec"]["containers"][0]["image"] == "registry.example/drakit:n1", "the one of the driver's own pod"
    assert pod["spec"]["containers"][0]["env"] == [{"name": "MPS_FOLDER", "value": FOLDER}]
    assert pod["spec"]["volumes"] == template["template"]["spec"]["volumes"]
    assert pod["metadata"]["labels"]["drakit.dev/driver"] == "gpu.drakit.dev"
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", "n1", True)
    assert owner["uid"] == node["metadata"]["uid"]
    pods.delete(NAME)
    pods.delete(NAME)
    assert pods.state(NAME) in (None, ports.PodState(phase=ports.PodPhase.ENDING))
    assert not pods.names()


def status(phase: str, **container: Any) -> Object:
    return {"phase": phase, "containerStatuses": [{"name": "daemon", "restartCount": 1, **container}] if container else []}


@pytest.mark.parametrize(
    "pod_status, phase, message",
    [
        (status("Pending"), ports.PodPhase.STARTING, ""),
        (
            status("Pending", state={"waiting": {"reason": "ErrImagePull", "message": "no\n such"}}),
            ports.PodPhase.STARTING,
            "ErrImagePull: no such",
        ),
        (status("Running", state={"running": {}}), ports.PodPhase.RUNNING, ""),
        (
            status(
                "Running",
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                lastState={"terminated": {"reason": "Error", "message": "no GPU"}},
            ),
            ports.PodPhase.FAILING,
            "Error: no GPU",
        ),
        ({"phase": "Failed", "reason": "OutOfcpu", "message": "node is full"}, ports.PodPhase.OVER, "OutOfcpu: node is full"),
    ],
)
def test_the_state_of_a_pod_says_why_it_does_not_run(
    server: apiserver.ApiServer, pods: kube_pods.ApiPods, pod_status: Object, phase: ports.PodPhase, message: str
) -> None:
    pods.create(WANTED)
    server.registry.update(POD, {**stored(server), "status": pod_status}, subresource="status")
    assert pods.state(NAME) == ports.PodState(phase=phase, message=message)


def test_a_missing_template_is_an_error_that_names_it(server: apiserver.ApiServer, pods: kube_pods.ApiPods) -> None:
    server.registry.delete(TEMPLATE, "drakit-mps", namespace=manifests.NAMESPACE)
    with pytest.raises(core_errors.ApiError, match="PodTemplate drakit-system/drakit-mps not found; apply drakit's manifests"):
        pods.create(WANTED)


def daemon(pod: Any) -> Any:
    labels = {"app.kubernetes.io/component": "mps-daemon"}
    return {**pod, "metadata": {"name": SECOND, "namespace": manifests.NAMESPACE, "labels": labels}}


def setting(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(pod: Any) -> None:
        place = pod
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def by_name(entries: list[Any], name: str) -> Any:
    return next(entry for entry in entries if entry["name"] == name)


def mounting(name: str, field: str, *, to: Any) -> Callable[[Any], None]:
    return lambda pod: by_name(pod["spec"]["containers"][0]["volumeMounts"], name).update({field: to})


CONTAINER = ("spec", "containers", 0)
SECURITY = (*CONTAINER, "securityContext")
PROBE = {"exec": {"command": ["sh", "-c", "id"]}}
CHEATS = {
    "another node": setting("spec", "nodeName", to="n2"),
    "no node": lambda pod: pod["spec"].pop("nodeName"),
    "another name": setting("metadata", "name", to="free"),
    "no label": setting("metadata", "labels", to={}),
    "image": setting(*CONTAINER, "image", to="registry.example/drakit:n2"),
    "command": setting(*CONTAINER, "command", to=["sh"]),
    "arguments": setting(*CONTAINER, "args", to=["/host/tmp"]),
    "mount": lambda pod: pod["spec"]["containers"][0]["volumeMounts"].append({"name": "mps", "mountPath": "/usr"}),
    "volume": lambda pod: pod["spec"]["volumes"].append({"name": "root", "hostPath": {"path": "/"}}),
    "variable": lambda pod: pod["spec"]["containers"][0]["env"].append({"name": "LD_PRELOAD", "value": "/host/tmp/evil.so"}),
    "other variable": setting(*CONTAINER, "env", to=[{"name": "LD_PRELOAD", "value": FOLDER}]),
    "variables from elsewhere": setting(*CONTAINER, "envFrom", to=[{"configMapRef": {"name": "a"}}]),
    "folder of a user": setting(*CONTAINER, "env", 0, "value", to="/host/tmp/gpu.drakit.dev/mps/0123456789abcdef"),
    "folder above": setting(*CONTAINER, "env", 0, "value", to=f"{FOLDER}/../../../../mps/0123456789abcdef"),
    "probe": setting(*CONTAINER, "livenessProbe", to=PROBE),
    "start hook": setting(*CONTAINER, "lifecycle", to={"postStart": PROBE}),
    "second container": lambda pod: pod["spec"]["containers"].append({"name": "b", "image": "evil"}),
    "init container": setting("spec", "initContainers", to=[{"name": "b", "image": "evil"}]),
    "processes of the host": setting("spec", "hostPID", to=True),
    "network of the host": setting("spec", "hostNetwork", to=True),
    "account": setting("spec", "serviceAccountName", to="drakit-gpu"),
    "token": setting("spec", "automountServiceAccountToken", to=True),
    "user namespace of its own": setting("spec", "hostUsers", to=False),
    "one process namespace": setting("spec", "shareProcessNamespace", to=True),
    "added capability": setting(*SECURITY, "capabilities", "add", to=["SYS_ADMIN"]),
    "kept capabilities": setting(*SECURITY, "capabilities", to={"drop": ["CHOWN"]}),
    "no capabilities dropped": setting(*SECURITY, "capabilities", to={}),
    "no seccomp": setting(*SECURITY, "seccompProfile", to={"type": "Unconfined"}),
    "seccomp of a file": setting(*SECURITY, "seccompProfile", to={"type": "Localhost", "localhostProfile": "a.json"}),
    "no AppArmor": setting(*SECURITY, "appArmorProfile", to={"type": "Unconfined"}),
    "no AppArmor, by annotation": setting(
        "metadata", "annotations", to={"container.apparmor.security.beta.kubernetes.io/daemon": "unconfined"}
    ),
    "SELinux type": setting(*SECURITY, "seLinuxOptions", to={"type": "spc_t"}),
    "bare /proc": setting(*SECURITY, "procMount", to="Unmasked"),
    "writable image": setting(*SECURITY, "readOnlyRootFilesystem", to=False),
    "another user": setting(*SECURITY, "runAsUser", to=1000),
    "another group": setting(*SECURITY, "runAsGroup", to=0),
    "no security context": lambda pod: pod["spec"]["containers"][0].pop("securityContext"),
    "sysctls": setting("spec", "securityContext", to={"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}),
    "SELinux type of the pod": setting("spec", "securityContext", to={"seLinuxOptions": {"type": "spc_t"}}),
    "no seccomp in the pod": setting("spec", "securityContext", to={"seccompProfile": {"type": "Unconfined"}}),
    "groups": setting("spec", "securityContext", to={"supplementalGroups": [0]}),
    "group of volumes": setting("spec", "securityContext", to={"fsGroup": 0}),
    "mounts that reach the host": mounting("mps", "mountPropagation", to="Bidirectional"),
    "folder that is created": lambda pod: by_name(pod["spec"]["volumes"], "mps")["hostPath"].update(type="DirectoryOrCreate"),
    "another priority": setting("spec", "priorityClassName", to="system-cluster-critical"),
    "no priority": lambda pod: pod["spec"].pop("priorityClassName"),
    "restart policy": setting("spec", "restartPolicy", to="Never"),
    "end": setting("spec", "activeDeadlineSeconds", to=1),
    "name of the host": setting("spec", "hostname", to="kubernetes"),
    "names": setting("spec", "hostAliases", to=[{"ip": "10.0.0.1", "hostnames": ["a"]}]),
    "name server": setting("spec", "dnsConfig", to={"nameservers": ["10.0.0.1"]}),
    "extended resource": setting(*CONTAINER, "resources", "limits", to={"nvidia.com/gpu": "1"}),
    "huge pages": setting(*CONTAINER, "resources", to={key: {"cpu": "1", "hugepages-2Mi": "2Mi"} for key in ("requests", "limits")}),
    "resources of the pod": setting("spec", "resources", to={"requests": {"cpu": "1"}}),
    "terminal": setting(*CONTAINER, "tty", to=True),
    "standard input": setting(*CONTAINER, "stdin", to=True),
    "restart rules": setting(*CONTAINER, "restartPolicyRules", to=[{"action": "Restart"}]),
    "file of the last words": setting(*CONTAINER, "terminationMessagePath", to="/etc/passwd"),
}
UNPRIVILEGED_CHEATS = {
    "privileged": setting(*SECURITY, "privileged", to=True),
    "more privileges": setting(*SECURITY, "allowPrivilegeEscalation", to=True),
    "root of the host": lambda pod: pod["spec"]["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
}
PRIVILEGED_CHEATS = {
    "root of the host that propagates": mounting("host", "mountPropagation", to="Bidirectional"),
    "writable root of the host": mounting("host", "readOnly", to=False),
}


@pytest.mark.parametrize(
    "server,more", [("gpu", PRIVILEGED_CHEATS), ("mock", UNPRIVILEGED_CHEATS)], indirect=["server"], ids=["gpu", "mock"]
)
def test_a_stolen_token_creates_only_daemons_on_its_own_node(
    server: apiserver.ApiServer, pods: kube_pods.ApiPods, more: dict[str, Callable[[Any], None]]
) -> None:
    pods.create(WANTED)
    good = daemon({**stored(server), "status": {}})
    with thief(server) as stolen:
        for cheat, change in {**CHEATS, **more}.items():
            pod = copy.deepcopy(good)
            change(pod)
            assert pod != good, cheat
            with pytest.raises(errors.ForbiddenError) as refused:
                stolen.create(POD, pod)
            assert "ValidatingAdmissionPolicy 'drakit-gpu-" in refused.value.message, cheat
        stolen.create(POD, good)
    with (
        thief(server, "n2") as elsewhere,
        pytest.raises(errors.ForbiddenError, match="of its own node only"),
    ):
        elsewhere.delete(POD, SECOND, namespace=manifests.NAMESPACE)


@pytest.mark.parametrize("server", ["gpu"], indirect=True)
def test_a_token_of_no_pod_creates_no_daemon(server: apiserver.ApiServer, pods: kube_pods.ApiPods) -> None:
    pods.create(WANTED)
    good = daemon({**stored(server), "status": {}})
    without_extra = server.issue_token(ACCOUNT, ("system:masters",))
    with (
        client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=without_extra) as stolen,
        pytest.raises(errors.ForbiddenError, match='of its own node only, which is ""'),
    ):
        stolen.create(POD, good)


@pytest.mark.parametrize("server", ["gpu"], indirect=True)
def test_a_stolen_token_changes_no_pod_and_deletes_no_other(server: apiserver.ApiServer, pods: kube_pods.ApiPods) -> None:
    pods.create(WANTED)
    pod = stored(server)
    other = {**pod, "metadata": {"name": "drakit-gpu-abcde", "namespace": manifests.NAMESPACE}}
    server.registry.create(POD, other)
    with thief(server) as stolen:
        attempts: list[Callable[[], object]] = [
            lambda: stolen.delete(POD, "drakit-gpu-abcde", namespace=manifests.NAMESPACE),
            lambda: stolen.patch(POD, NAME, {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE, namespace=manifests.NAMESPACE),
            lambda: stolen.update(POD, pod),
            lambda: stolen.create(POD, {**daemon(pod), "metadata": {**daemon(pod)["metadata"], "namespace": "default"}}),
        ]
        for attempt in attempts:
            with pytest.raises(errors.ForbiddenError):
                attempt()
    assert json_types.text(stored(server), "metadata", "name") == NAME


@pytest.mark.parametrize("server", ["gpu"], indirect=True)
def test_a_token_that_outlives_its_pod_runs_no_image_of_another_repository(server: apiserver.ApiServer, pods: kube_pods.ApiPods) -> None:
    pods.create(WANTED)
    pod = daemon({**stored(server), "status": {}})
    server.registry.delete(POD, "drakit-gpu-n1", namespace=manifests.NAMESPACE, grace_seconds=0)
    with thief(server) as stolen:
        for image in ("evil.example/x:1", "registry.example/evil:n2", "registry.example/drakit/evil:n2", "drakit:n2", "registry.example"):
            pod["spec"]["containers"][0]["image"] = image
            with pytest.raises(errors.ForbiddenError, match="from the repository that all pods of the driver use"):
                stolen.create(POD, pod)
        for name, image in (("drakit-mps-tag", "registry.example/drakit:n1"), ("drakit-mps-digest", "registry.example/drakit@sha256:00")):
            pod["metadata"]["name"] = name
            pod["spec"]["containers"][0]["image"] = image
            stolen.create(POD, pod)
