"""``kubectl exec`` into the driver's pod of the mock overlay: commands with exactly its environment, and a home that cannot be written.

Only the folders that the pod mounts from its node are the test's own.
"""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from fakes import forked_cli, manifests

UID = "4cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
FIELDS = {
    "spec.nodeName": "node-1",
    "status.podIP": "127.0.0.1",
    "metadata.namespace": "drakit-system",
    "metadata.uid": "0f9d2a4e-58a1-4c8e-9a30-6f1a2f2b7c11",
}
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="a read-only home is a mount"),
    manifests.needs_kubectl,
]
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "claim", "namespace": "default", "uid": UID},
    "spec": {},
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "gpu.drakit.dev", "pool": "node-1", "device": "gpu-0-mig-3g20gb-9-0"}]}
        }
    },
}


def environment(folder: str, daemonset: str) -> dict[str, str]:
    """The driver's environment as the kubelet makes it of the manifest."""
    sets = {one["metadata"]["name"]: one for one in manifests.rendered(folder) if one["kind"] == "DaemonSet"}
    pod = sets[daemonset]["spec"]["template"]["spec"]
    found: dict[str, str] = {}
    for entry in pod["containers"][0]["env"]:
        value = FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in entry else entry["value"]
        found[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod:
    """The driver's container: its environment, its node's folders."""

    folder: pathlib.Path
    env: dict[str, str]
    commands: forked_cli.Commands

    def run(self, *arguments: str, **changed: str) -> "subprocess.CompletedProcess[str]":
        home, node = self.folder / "home", self.folder / "node"
        home.mkdir(exist_ok=True)
        places = {name: str(node / name) for name in ("plugins_dir", "registry_dir", "cdi_dir")}
        for place in places.values():
            pathlib.Path(place).mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            **self.env,
            **{f"DRAKIT_NODE__{name.upper()}": place for name, place in places.items()},
            **changed,
        }
        return self.commands.run(*arguments, environment=env, sealed=home)

    def succeeds(self, *arguments: str, **changed: str) -> str:
        ran = self.run(*arguments, **changed)
        assert ran.returncode == 0, ran.stderr + ran.stdout
        return ran.stdout


@pytest.fixture
def pod(commands: forked_cli.Commands) -> Iterator[Pod]:
    # Not tmp_path: sockets lie below, whose paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pod") as name:
        folder = pathlib.Path(name)
        (folder / "claim.yaml").write_text(json.dumps(CLAIM))
        yield Pod(folder=folder, env=environment("daemonset/overlays/mock", "drakit-gpu"), commands=commands)


def drivers(text: str) -> dict[str, dict[str, object]]:
    return {document["driver"]: document for document in json.loads(text)}


def test_doctor_show_and_journal_see_the_machine_that_is_served(pod: Pod) -> None:
    pod.succeeds("prepare", str(pod.folder / "claim.yaml"))
    claims: object = drivers(pod.succeeds("show", "-o", "json"))["gpu.drakit.dev"]["claims"]
    assert isinstance(claims, list)
    assert [claim["uid"] for claim in claims] == [UID]
    assert UID in pod.succeeds("journal", "show", "-o", "json")
    doctor = pod.succeeds("doctor", "--no-api")
    assert "gpu.drakit.dev: 52 devices" in doctor
    assert re.search(r"gpu\.drakit\.dev: 1 prepared claim\b", doctor), doctor


def test_naming_the_machine_that_is_served_is_about_the_same_one(pod: Pod) -> None:
    pod.succeeds("prepare", str(pod.folder / "claim.yaml"))
    shown = pod.succeeds("show", "--mock", pod.env["DRAKIT_MOCK__MACHINE"], "-o", "json")
    assert len(drivers(shown)["gpu.drakit.dev"]["claims"]) == 1  # type: ignore[arg-type]


def test_another_machine_than_the_served_one_needs_a_folder_and_the_error_says_so(pod: Pod) -> None:
    ran = pod.run("show", "--mock", "dgx-h100")
    assert ran.returncode == 2
    assert "Read-only file system; name a folder that can be written, with --folder or mock.dir" in ran.stderr
    assert pod.run("show", "--mock", "dgx-h100", "--folder", str(pod.folder / "other")).returncode == 0


def test_the_machine_of_a_node_can_be_changed_and_changed_back(pod: Pod) -> None:
    before = pod.succeeds("prepare", str(pod.folder / "claim.yaml"), "-o", "json")
    changed = {"DRAKIT_MOCK__MACHINE": "dgx-h100"}
    shown = drivers(pod.succeeds("show", "-o", "json", **changed))["gpu.drakit.dev"]
    assert "H100" in json.dumps(shown) or "gpu-7" in json.dumps(shown)
    assert pod.run("prepare", str(pod.folder / "claim.yaml"), **changed).returncode == 1, "its device is gone with the machine"
    assert UID in pod.succeeds("unprepare", UID, **changed)
    assert pod.succeeds("prepare", str(pod.folder / "claim.yaml"), "-o", "json") == before
    assert sorted(place.name for place in (pod.folder / "node" / "plugins_dir" / "mock").iterdir()) == ["dgx-a100-40gb-2gpu", "dgx-h100"]


@pytest.mark.parametrize(
    "folder, daemonset",
    [("daemonset/overlays/mock", "drakit-gpu"), ("daemonset/overlays/mock", "drakit-nic"), ("examples/tpu/deploy", "drakit-tpu")],
)
def test_no_overlay_names_its_machine_where_commands_in_the_pod_do_not_see_it(folder: str, daemonset: str) -> None:
    assert "--mock" not in json.dumps(manifests.rendered(folder))
    assert "DRAKIT_MOCK__MACHINE" in environment(folder, daemonset)
