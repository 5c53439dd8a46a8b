"""Claims and classes written for gpu.nvidia.com select what they mean when drakit serves under that name."""

import json
import pathlib
from collections.abc import Callable

import pytest
import yaml

from fakes import command_line

DRIVER = "gpu.nvidia.com"
MACHINE = "dgx-h100"
NAMED = ("--set", f"gpu.driver_name={DRIVER}")
CLASSES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mig.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"}}]}
---
"""
SELECTORS = [
    ("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*h100.*$')", "gpu-0"),
    ("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'", "gpu-0"),
    ("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].brand == 'Nvidia'", "gpu-0"),
    ("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].cudaComputeCapability.compareTo(semver('9.0.0')) >= 0", "gpu-0"),
    ("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('550.0.0'))", "gpu-0"),
    ("gpu.nvidia.com", "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0", "gpu-0"),
    ("gpu.nvidia.com", "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:99'", "gpu-4"),
    ("mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'", "gpu-0-mig-1g10gb-19-6"),
    ("mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile in ['3g.40gb', '4g.40gb']", "gpu-0-mig-3g40gb-9-4"),
    ("mig.nvidia.com", "device.capacity['gpu.nvidia.com'].multiprocessors.isGreaterThan(quantity('100'))", "gpu-0-mig-7g80gb-0-0"),
]


def claim(device_class: str, *expressions: str, **fields: object) -> dict[str, object]:
    wanted = {"deviceClassName": device_class, "selectors": [{"cel": {"expression": one}} for one in expressions]}
    requests = [{"name": "r0", "exactly": wanted}]
    metadata = {"name": "one", "namespace": "demo"}
    spec = {"devices": {"requests": requests, **fields}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


@pytest.fixture
def slices(shell: command_line.CommandLine, published_json: Callable[..., str]) -> str:
    file = shell.folder / "slices.yaml"
    file.write_text(published_json(MACHINE, *NAMED, before=CLASSES))
    return str(file)


def served(shell: command_line.CommandLine) -> tuple[str, ...]:
    """A mock H100 node whose GPUs are served under NVIDIA's name."""
    place = ("--node", "node-1", "--folder", str(shell.folder / "node"))
    return (*NAMED, "--mock", MACHINE, *place)


@pytest.mark.parametrize("device_class,expression,device", SELECTORS)
def test_nvidias_selectors_mean_the_same(
    shell: command_line.CommandLine, slices: str, device_class: str, expression: str, device: str
) -> None:
    asked = shell.folder / "asked.yaml"
    asked.write_text(yaml.dump(claim(device_class, expression), Dumper=yaml.CSafeDumper))
    outcome = shell.run("allocate", "-f", slices, "-f", str(asked))
    assert outcome.status == 0, outcome.err + outcome.out
    assert outcome.out.split()[-1] == f"{DRIVER}/node-1/{device}"


def test_two_partitions_of_one_gpu_are_found_by_their_parent(shell: command_line.CommandLine, slices: str) -> None:
    wanted = {"deviceClassName": "mig.nvidia.com", "count": 2}
    metadata = {"name": "two", "namespace": "demo"}
    devices = {
        "requests": [{"name": "r0", "exactly": wanted}],
        "constraints": [{"requests": ["r0"], "matchAttribute": "gpu.nvidia.com/parentUUID"}],
    }
    asked = shell.folder / "asked.yaml"
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}
    asked.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
    outcome = shell.run("allocate", "-f", slices, "-f", str(asked))
    assert outcome.status == 0, outcome.err
    assert outcome.out.count(f"{DRIVER}/node-1/gpu-0-mig-") == 2


def test_nvidias_parameters_work_and_the_container_gets_the_driver_files(shell: command_line.CommandLine) -> None:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
    config = {"source": "FromClaim", "requests": [], "opaque": {"driver": DRIVER, "parameters": parameters}}
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    outcome = shell.run("prepare", shell.claim_file(result, config=[config]), *served(shell))
    assert outcome.status == 0, outcome.err
    (file,) = (shell.folder / "node").rglob("gpu.nvidia.com-claim*.json")
    spec = json.loads(file.read_text())
    (edits,) = (one["containerEdits"] for one in spec["devices"])
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits["env"]
    mounts = {mount["containerPath"]: pathlib.Path(mount["hostPath"]) for mount in edits["mounts"]}
    for name in ("libcuda.so.580.95.05", "libcuda.so.1", "libnvidia-ml.so.1"):
        assert mounts[f"/usr/lib64/{name}"].is_file()
    assert mounts["/usr/bin/nvidia-smi"].is_file()
    (state,) = (shell.folder / "node").rglob("gpus.json")
    assert json.loads(state.read_text())["gpus"][0]["timeSlice"] == "Long"
