"""The manifests of the repository as ``kubectl kustomize`` renders them."""

import functools
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

import pytest
import yaml

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
    run = subprocess.run(["kubectl", "kustomize", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return list(yaml.load_all(run.stdout, Loader=yaml.CSafeLoader))


def overlay(name: str) -> list[Any]:
    return rendered(f"daemonset/overlays/{name}")


def example(name: str) -> list[Any]:
    return rendered(f"examples/{name}/deploy")


@functools.cache
def example_with_webhook(name: str) -> list[Any]:
    """Return an example's objects with its component ``webhook``, which its author turns on by removing two comment marks."""
    with tempfile.TemporaryDirectory(prefix="drakit-deploy-") as folder:
        deploy = pathlib.Path(folder) / "deploy"
        shutil.copytree(ROOT / "examples" / name / "deploy", deploy)
        kustomization = deploy / "kustomization.yaml"
        text = kustomization.read_text().replace("# components:", "components:").replace("#   - webhook", "  - webhook")
        kustomization.write_text(text)
        return rendered(str(deploy))
