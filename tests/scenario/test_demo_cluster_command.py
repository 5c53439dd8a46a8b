"""``drakit cluster``: the commands that it prints work as they are."""

import pathlib
import re
import shlex
import signal
import socket
from collections.abc import Iterator

import pytest
import yaml
from kubernetes import client as official
from kubernetes import config

from drakit_cluster.client import client
from drakit_cluster.objects import json_types, resources
from drakit_tools.demo import samples
from fakes import demo, forked_cli

KINDS = {resource.kind: resource for resource in resources.ALL}


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with demo.short_folder() as made:
        yield made


def test_a_driver_started_as_documented_publishes_and_prepares_and_events_are_shown(
    folder: pathlib.Path, commands: forked_cli.Commands
) -> None:
    with demo.running(folder, "cluster", "--events", commands=commands) as cluster:
        kubeconfig = pathlib.Path(cluster.read_until(r"export KUBECONFIG=(\S+)")[1])
        command = shlex.split(cluster.read_until(r"^  drakit (run .*)$")[1])
        cluster.read_until("Ctrl-C to stop it")
        with demo.running(folder, *command, commands=commands) as driver, client.ApiClient.from_kubeconfig(kubeconfig) as api:
            driver.read_until("slices published.*gpu.drakit.dev")
            with config.new_client_from_config(str(kubeconfig)) as typed:
                published = official.ResourceV1Api(typed).list_resource_slice(field_selector="spec.driver=gpu.drakit.dev").items
                assert sum(len(one.spec.devices or []) for one in published) == 52, "models of released clients read what is stored"
            for item in (*samples.classes(), *samples.load("00-namespace"), *samples.load("60-one-partition")):
                api.create(KINDS[json_types.text(item, "kind")], item)
            cluster.read_until(
                r"^\d\d:\d\d:\d\d  Normal   \w+  Pod drakit-demo/one-partition: assigned drakit-demo/one-partition to node-1"
            )
            driver.read_until("claim answered")
            about: json_types.Object = {"kind": "Pod", "name": "p", "namespace": "default"}
            hostile: json_types.Object = {"reason": "Hostile", "message": "\x1b[31mred", "type": "Warning", "involvedObject": about}
            api.create(resources.EVENT, {"metadata": {"name": "e", "namespace": "default"}, **hostile})
            cluster.read_until(r"Warning  Hostile  Pod default/p: \\u001b\[31mred")
            assert driver.end(signal.SIGTERM) == 0
        assert cluster.end(signal.SIGTERM) == 0
    assert not list(folder.iterdir())


def test_nodes_port_and_gates_are_as_asked(folder: pathlib.Path, commands: forked_cli.Commands) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    asked = ("--node", "a", "--node", "b", "--port", str(port), "--gate", "DRAResourceSliceMixins=false", "--folder", str(folder / "c"))
    with demo.running(folder, "cluster", *asked, commands=commands) as cluster:
        cluster.read_until("Ctrl-C to stop it")
        kubeconfig = folder / "c" / "kubeconfig"
        assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{port}"
        with client.ApiClient.from_kubeconfig(kubeconfig) as api:
            assert [json_types.text(node, "metadata", "name") for node in api.list(resources.NODE).items] == ["a", "b"]
        assert len(re.findall(r"^  drakit run ", cluster.out, re.MULTILINE)) == 2
        second = demo.finished(folder, "cluster", "--port", str(port), commands=commands)
        assert (second.returncode, second.stdout) == (2, "")
        assert second.stderr.startswith(f"drakit: --port: cannot listen on 127.0.0.1 port {port}")
        assert cluster.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--gate", "Teleport=true"), "--gate: unknown feature gates Teleport; known are "),
        (("--gate", "DRAResourceSliceMixins"), "--gate DRAResourceSliceMixins: write NAME=true or NAME=false\n"),
        (
            ("--gate", "etcd:DRAResourceSliceMixins=true"),
            "--gate etcd:DRAResourceSliceMixins=true: unknown component 'etcd'; known are apiserver, scheduler, controllers, kubelet\n",
        ),
        (("--gate", "kubelet:Teleport=true"), "--gate: unknown feature gates Teleport; known are "),
        (("--keep-state",), "--keep-state: needs --folder DIR; add it\n"),
        (("--node", "Big_Node"), "--node: "),
        (("--folder", f"/tmp/{'x' * 80}"), "--folder: "),
    ],
    ids=[
        "unknown gate",
        "gate without a state",
        "unknown component",
        "unknown gate of one",
        "state nowhere",
        "node name",
        "folder too long",
    ],
)
def test_what_cannot_be_started_says_why_in_one_line(
    folder: pathlib.Path, commands: forked_cli.Commands, arguments: tuple[str, ...], message: str
) -> None:
    ran = demo.finished(folder, "cluster", *arguments, commands=commands)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"drakit: {message}")
    assert ran.stderr.count("\n") == 1
