"""The manifests of the repository as ``kubectl kustomize`` renders them."""

import functools
import pathlib
import shutil
import subprocess
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE = "drakit-system"
OVERLAYS = {
    "mock": {"drakit-gpu", "drakit-nic"},
    "tpu-mock": {"drakit-tpu"},
    "gpu": {"drakit-gpu"},
    "nic": {"drakit-nic"},
    "gpu-nic": {"drakit-gpu", "drakit-nic"},
}
"""Every overlay with its DaemonSets."""

EXAMPLES = {"cpu": "cpu.example.com", "everything": "gpu.example.com", "fpga": "fpga.example.com", "hello": "hello.example.com"}
"""Every example, and the driver that its manifests are for; hello is what `drakit new` writes."""

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the kustomizations and is not installed")


@functools.cache
def rendered(folder: str) -> list[Any]:
    run = subprocess.run(["kubectl", "kustomize", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return list(yaml.safe_load_all(run.stdout))


def overlay(name: str) -> list[Any]:
    return rendered(f"daemonset/overlays/{name}")


def example(name: str) -> list[Any]:
    return rendered(f"examples/{name}/deploy")
