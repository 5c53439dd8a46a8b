"""The manifests of the repository as ``kubectl kustomize`` renders them."""

import functools
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

import pytest
import yaml

from fakes import run_folder

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE = "drakit-system"
OVERLAYS = {
    "mock": {"drakit-gpu", "drakit-nic"},
    "gpu": {"drakit-gpu"},
    "nic": {"drakit-nic"},
    "gpu-nic": {"drakit-gpu", "drakit-nic"},
}
"""Every overlay with its DaemonSets."""

TPU = "examples/tpu/deploy"
"""The example that is a device family of drakit: its manifests are made of drakit's own, and are applied beside them."""

EXAMPLES = {"cpu": "cpu.example.com", "everything": "gpu.example.com", "fpga": "fpga.example.com", "hello": "hello.example.com"}
"""Every example that is a program of its own, and the driver that its manifests are for; hello is what `drakit new` writes."""

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the kustomizations and is not installed")


@functools.cache
def rendered(folder: str) -> list[Any]:
    return list(yaml.load_all(run_folder.text(f"kustomize {folder}", lambda: _kustomized(folder)), Loader=yaml.CSafeLoader))


def _kustomized(folder: str) -> str:
    run = subprocess.run(["kubectl", "kustomize", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def overlay(name: str) -> list[Any]:
    return rendered(f"daemonset/overlays/{name}")


def example(name: str) -> list[Any]:
    return rendered(f"examples/{name}/deploy")


@functools.cache
def example_with_webhook(name: str, *, pods: bool = False) -> list[Any]:
    """Return an example's objects with its component ``webhook``, which its author turns on by removing two comment marks; a third for ``pods``."""
    wanted = ("# components:", "#   - webhook\n", *(("#   - webhook/pods\n",) if pods else ()))
    return _changed(f"examples/{name}/deploy", "kustomization.yaml", wanted)


@functools.cache
def webhook_with_pods() -> list[Any]:
    """Return drakit's own webhook with its reviews of pods."""
    return _changed("daemonset", "webhook/kustomization.yaml", ("# components:", "#   - ../components/webhook-pods\n"))


def _changed(folder: str, kustomization: str, comments: tuple[str, ...]) -> list[Any]:
    """Return the objects of a kustomization below a folder, with the comment marks of some lines removed."""
    with tempfile.TemporaryDirectory(prefix="drakit-deploy-") as place:
        copied = pathlib.Path(place) / "deploy"
        shutil.copytree(ROOT / folder, copied)
        file = copied / kustomization
        text = file.read_text()
        for comment in comments:
            assert comment in text
            text = text.replace(comment, comment.replace("# ", "", 1))
        file.write_text(text)
        return rendered(str(file.parent))
