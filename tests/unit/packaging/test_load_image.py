"""An image of the engine reaches the cluster under the name that its pods ask for. The engine and the clusters' programs are stand-ins."""

import os
import pathlib
import subprocess
from collections.abc import Callable, Sequence

import pytest

from fakes import manifests

SCRIPT = manifests.ROOT / "daemonset" / "load-image"
PROGRAMS = ("engine", "kind", "k3s", "minikube", "microk8s", "sudo")
READS = 'for word; do case $word in *.tar) cat "$word" >/dev/null;; esac; done'
"""A cluster's program fails without the archive."""
BODIES = {"engine": '[ "$1" != save ] || echo archive >"$3"', "sudo": 'exec "$@"'}
Ran = Callable[..., "tuple[subprocess.CompletedProcess[str], Sequence[str]]"]


@pytest.fixture
def load(tmp_path: pathlib.Path) -> Ran:
    """Run the script; returns how it ended and the commands that it ran, with the folder of the archive cut."""
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "bin").mkdir()
    for program in PROGRAMS:
        file = tmp_path / "bin" / program
        body = BODIES.get(program, READS)
        file.write_text(f'#!/bin/sh -e\necho "{program} $*" >>{log}\n{body}\n')
        file.chmod(0o755)

    def run(*arguments: str, **environment: str) -> "tuple[subprocess.CompletedProcess[str], Sequence[str]]":
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        given = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path), **environment}
        ran = subprocess.run([SCRIPT, *arguments], env=given, capture_output=True, text=True, check=False)
        folders = [str(entry) for entry in tmp_path.glob("tmp.*")]
        assert not folders, "the archive is removed"
        return ran, [
            " ".join(word.rpartition("/")[2] if word.endswith(".tar") else word for word in line.split())
            for line in log.read_text().splitlines()
        ]

    return run


@pytest.mark.parametrize(
    "cluster, imported",
    [
        ("kind", ["kind load image-archive image.tar --name kind"]),
        ("k3s", ["sudo k3s ctr images import image.tar", "k3s ctr images import image.tar"]),
        ("minikube", ["minikube image load image.tar"]),
        ("microk8s", ["sudo microk8s ctr image import image.tar", "microk8s ctr image import image.tar"]),
    ],
)
def test_an_image_without_a_registry_gets_the_name_that_a_kubelet_expands_it_to(load: Ran, cluster: str, imported: Sequence[str]) -> None:
    ran, commands = load(cluster, "engine", "drakit:0.1.0")
    assert ran.returncode == 0, ran.stderr
    name = "docker.io/library/drakit:0.1.0"
    assert commands == [f"engine tag drakit:0.1.0 {name}", f"engine save --output image.tar {name}", *imported]


def test_an_image_of_a_registry_keeps_its_name_and_a_kind_cluster_can_be_named(load: Ran) -> None:
    ran, commands = load("kind", "engine", "registry.example.com/drakit:1", KIND_CLUSTER="gpus")
    assert ran.returncode == 0, ran.stderr
    saved = "engine save --output image.tar registry.example.com/drakit:1"
    assert commands == [saved, "kind load image-archive image.tar --name gpus"]


@pytest.mark.parametrize("cluster", ["", "docker-desktop"])
def test_an_unknown_cluster_is_refused_before_anything_runs(load: Ran, cluster: str) -> None:
    ran, commands = load(cluster, "engine", "drakit:0.1.0")
    assert (ran.returncode, commands) == (2, [])
    assert "write CLUSTER=kind, k3s, minikube or microk8s" in ran.stderr
