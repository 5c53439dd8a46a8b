"""The runtime in isolated mode: a network namespace for each pod, and hooks run on the host with the state that containerd gives them."""

import json
import pathlib
import time
from collections.abc import Iterator

import pytest

from drakit_cluster.runtime import Config, Identity, Mode, Runtime, RuntimeFailureError
from fakes import netns, waits

pytestmark = pytest.mark.root

POD = Identity(namespace="default", name="p", uid="0f0f0f0f-0000-4000-8000-000000000001")
OTHER = Identity(namespace="default", name="q", uid="0f0f0f0f-0000-4000-8000-000000000002")
ON_THE_HOST = Identity(namespace="default", name="h", uid="0f0f0f0f-0000-4000-8000-000000000003", host_network=True)
OWN = str(pathlib.Path("/proc/self/ns/net").readlink())


@pytest.fixture
def runtime(tmp_path: pathlib.Path) -> Iterator[Runtime]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    made = Runtime([tmp_path], tmp_path / "logs", mode=Mode.ISOLATED)
    yield made
    made.shut_down()


def device(folder: pathlib.Path, script: str, **hook: object) -> Config:
    """A container whose device has a hook that runs a script."""
    called = {"hookName": "createRuntime", "path": "/bin/sh", "args": ["sh", "-c", script], **hook}
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/nic", "devices": [{"name": "a", "containerEdits": {"hooks": [called]}}]}
    (folder / "x.json").write_text(json.dumps(spec))
    return Config(name="main", env={}, command=("sleep", "infinity"), cdi_devices=("example.com/nic=a",))


def space(runtime: Runtime, pod: Identity) -> str:
    return str(pathlib.Path(f"/proc/{runtime.view(pod.namespace, pod.name).process_id}/ns/net").readlink())


def start(runtime: Runtime, pod: Identity, config: Config = Config(name="main", env={}, command=("sleep", "infinity"))) -> str:  # noqa: B008 - it is frozen
    """Start a container; the namespace it is in once its program runs."""
    runtime.run_sandbox(pod)
    runtime.start(pod.uid, config)
    deadline = time.monotonic() + waits.SECONDS
    process = runtime.view(pod.namespace, pod.name).process_id
    while pathlib.Path(f"/proc/{process}/comm").read_text() != "sleep\n":
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return space(runtime, pod)


def test_each_pod_has_a_namespace_of_its_own_but_those_of_the_host_s_network(runtime: Runtime) -> None:
    spaces = [start(runtime, pod) for pod in (POD, OTHER, ON_THE_HOST)]
    assert len(set(spaces)) == 3
    assert spaces[2] == OWN


def test_a_hook_runs_on_the_host_with_the_pod_s_namespace_in_its_state(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    script = f"cat > {tmp_path}/state; readlink /proc/self/ns/net > {tmp_path}/own; pwd > {tmp_path}/bundle; env > {tmp_path}/env"
    inside = start(runtime, POD, device(tmp_path, script, env=["A=1"]))
    state = json.loads((tmp_path / "state").read_text())
    assert state["status"] == "creating"
    assert state["annotations"]["io.kubernetes.cri.sandbox-uid"] == POD.uid
    assert state["annotations"]["io.kubernetes.cri.container-name"] == "main"
    assert str(pathlib.Path(f"/proc/{state['pid']}/ns/net").readlink()) == inside
    assert (tmp_path / "own").read_text().strip() == OWN
    assert (tmp_path / "bundle").read_text().strip() == state["bundle"]
    assert {line.partition("=")[0] for line in (tmp_path / "env").read_text().split()} <= {"A", "PWD", "SHLVL", "_", "OLDPWD"}


def test_a_failing_hook_stops_the_container_and_its_output_is_reported(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    runtime.run_sandbox(POD)
    with pytest.raises(RuntimeFailureError, match="exit status 3, stdout: , stderr: no route") as refused:
        runtime.start(POD.uid, device(tmp_path, "echo no route >&2; exit 3"))
    assert refused.value.reason == "StartError"
    assert runtime.view("default", "p").exit_code == 128


def test_a_hook_that_hangs_is_ended_at_its_timeout(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    runtime.run_sandbox(POD)
    with pytest.raises(RuntimeFailureError, match="timed out after 1 seconds"):
        runtime.start(POD.uid, device(tmp_path, "exec sleep 60", timeout=1))


def test_a_pod_that_is_stopped_leaves_no_namespace_and_a_new_sandbox_gets_a_new_one(runtime: Runtime) -> None:
    first = start(runtime, POD)
    runtime.kill_sandbox(POD.uid)
    deadline = time.monotonic() + waits.SECONDS
    while first in {_link(entry) for entry in pathlib.Path("/proc").glob("[0-9]*/ns/net")}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert start(runtime, POD) != OWN


def _link(path: pathlib.Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
