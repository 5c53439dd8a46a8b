"""Containers as real processes, and pods' phases and restarts."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import CLAIM, POD
from drakit_cluster.runtime import Config, Hook, Identity, Mode, Runtime, RuntimeFailureError, State
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

PODS = Identity(namespace="default", name="p", uid="u")


@pytest.fixture
def real(folder: pathlib.Path) -> Iterator[QuickCluster]:
    """A cluster that runs commands."""
    running = QuickCluster(folder, mode=Mode.REAL).start()
    yield running
    running.stop()


def _pod(name: str, *command: str, restart: str = "Never", claim: str = "") -> json_types.Object:
    containers = [objects.container("main", *([objects.use()] if claim else []), command=list(command))]
    return objects.pod(name, claim=claim, containers=containers, restartPolicy=restart)


def test_a_command_gets_the_environment_of_its_pod_and_devices(real: QuickCluster) -> None:
    real.plugin()
    real.offer("gpu-0")
    real.create(CLAIM, objects.claim("c"))
    pod = _pod("p", "/bin/sh", "-c", 'echo "$DEVICE_GPU $OWN ${HIDDEN-none}"', claim="c")
    container = json_types.objects(pod, "spec", "containers")[0]
    container["env"] = [{"name": "OWN", "value": "mine"}, {"name": "DEVICE_GPU", "value": "of the pod"}]
    os.environ["HIDDEN"] = "of the cluster"
    try:
        created = real.create(POD, pod)
        real.phase("p", "Succeeded")
    finally:
        del os.environ["HIDDEN"]
    log = real.cluster.node(objects.NODE).folder.logs / json_types.text(created, "metadata", "uid") / "main.log"
    assert log.read_text() == "gpu-0 mine none\n"


@pytest.mark.parametrize("code,phase", [(0, "Succeeded"), (3, "Failed")])
def test_the_exit_code_decides_the_phase(real: QuickCluster, code: int, phase: str) -> None:
    real.create(POD, _pod("p", "/bin/sh", "-c", f"exit {code}"))
    [status] = json_types.objects(real.phase("p", phase), "status", "containerStatuses")
    assert json_types.number(status, "state", "terminated", "exitCode") == code


def test_a_failed_container_is_started_again_where_the_policy_says_so(real: QuickCluster) -> None:
    real.create(POD, _pod("p", "/bin/sh", "-c", "test -e flag || { touch flag; exit 1; }", restart="OnFailure"))
    flag = pathlib.Path("flag")
    try:
        [status] = json_types.objects(real.phase("p", "Succeeded"), "status", "containerStatuses")
    finally:
        flag.unlink(missing_ok=True)
    assert status["restartCount"] == 1


def test_a_command_that_does_not_exist_is_reported(real: QuickCluster) -> None:
    real.create(POD, _pod("p", "/no/such/program", restart="Always"))
    real.until(lambda: real.events("Failed"), "an event")
    assert "failed to start '/no/such/program'" in real.events("Failed")[0]
    assert json_types.text(real.find(POD, "p"), "status", "phase") in ("Pending", "Running")


def test_deleting_a_pod_ends_its_processes_and_their_children(real: QuickCluster, folder: pathlib.Path) -> None:
    marker = folder / "child"
    real.run(_pod("p", "/bin/sh", "-c", f"sleep 60 & echo $! > {marker}; wait"))
    real.until(lambda: marker.exists() and marker.read_text().strip(), "the child")
    child = int(marker.read_text())
    main = real.view("p").process_id
    assert main is not None
    real.delete("p")
    real.gone(POD, "p")
    real.until(lambda: not (_alive(main) or _alive(child)), "the end of both")


def test_a_process_that_ignores_the_signal_is_killed_after_its_grace(real: QuickCluster) -> None:
    real.run(_pod("p", "/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"))
    main = real.view("p").process_id
    assert main is not None
    real.delete("p")
    real.gone(POD, "p")
    assert not _alive(main)


def _alive(process: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_an_init_container_that_fails_for_good_fails_the_pod(real: QuickCluster) -> None:
    pod = objects.pod("p", restartPolicy="Never", inits=[objects.container("init", command=["/bin/false"])])
    real.create(POD, pod)
    real.phase("p", "Failed")


def test_a_simulated_pod_ends_by_its_annotation_at_any_restart_policy(cluster: QuickCluster) -> None:
    cluster.create(POD, objects.pod("p", run_seconds=0.05))
    cluster.phase("p", "Succeeded")


def test_hooks_run_when_a_runner_is_given_and_can_refuse_the_container(tmp_path: pathlib.Path) -> None:
    edits = '{"hooks": [{"hookName": "createRuntime", "path": "/bin/sh"}, {"hookName": "poststop", "path": "/bin/cat"}]}'
    device = f'{{"name": "a", "containerEdits": {edits}}}'
    (tmp_path / "x.json").write_text(f'{{"cdiVersion": "0.5.0", "kind": "example.com/nic", "devices": [{device}]}}')
    ran: list[tuple[str, str, str]] = []
    refuse: list[str] = []

    def run(hook: Hook, pod: Identity, container: str) -> None:
        ran.append((hook.path, pod.uid, container))
        if refuse:
            raise RuntimeFailureError("StartError", refuse[0])

    runtime = Runtime([tmp_path], tmp_path / "logs", run_hook=run)
    runtime.run_sandbox(PODS)
    view = runtime.start("u", Config(name="main", env={}, cdi_devices=("example.com/nic=a",)))
    assert ran == [("/bin/sh", "u", "main")]
    assert [hook.name for hook in view.edits.hooks] == ["createRuntime", "poststop"]
    refuse.append("no route")
    with pytest.raises(RuntimeFailureError, match="no route"):
        runtime.start("u", Config(name="other", env={}, cdi_devices=("example.com/nic=a",)))
    assert (runtime.view("default", "p", "other").state, runtime.view("default", "p", "other").exit_code) == (State.EXITED, 128)
    runtime.shut_down()


def test_a_container_needs_a_sandbox(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeFailureError, match="there is no sandbox for pod u"):
        Runtime([tmp_path], tmp_path).start("u", Config(name="main", env={}))


def test_an_error_for_a_missing_container_gives_their_number(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyError, match="pod default/p has 0 containers"):
        Runtime([tmp_path], tmp_path).view("default", "p")
