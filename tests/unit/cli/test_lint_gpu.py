"""What lint says of parameters for GPUs that the selected devices cannot have, such as time slices for MIG partitions."""

import json
from typing import Any

import pytest
import yaml

from drakit_gpu import config
from drakit_gpu.inventory import attributes
from fakes import command_line

GPU = "gpu.drakit.dev"
SLICED = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}


def claim(device_class: str, kind: str, *requests: str) -> dict[str, Any]:
    parameters = {"apiVersion": "gpu.drakit.dev/v1", "kind": kind, "sharing": SLICED if kind == "GpuConfig" else {"strategy": "MPS"}}
    devices = {
        "requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}],
        "config": [{"requests": [*requests], "opaque": {"driver": GPU, "parameters": parameters}}],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}


def lint(shell: command_line.CommandLine, obj: object) -> list[dict[str, Any]]:
    slices, classes = shell.folder / "slices.yaml", "driver/drakit_tools/demo/deviceclasses.yaml"
    if not slices.exists():
        machine = ("--mock", "dgx-a100-40gb-2gpu", "--family", "gpu", "--folder", str(shell.folder / "lab"))
        slices.write_text(shell.run("slices", *machine, "-o", "yaml").out)
    file = shell.folder / "claim.yaml"
    file.write_text(yaml.safe_dump(obj))
    found: list[dict[str, Any]] = json.loads(shell.run("lint", str(slices), classes, str(file), "-o", "json").out)
    return [one for one in found if one["file"] == str(file)]


@pytest.mark.parametrize("device_class, kind", [("mig.drakit.dev", "GpuConfig"), ("gpu.drakit.dev", "MigConfig")])
def test_parameters_that_fit_no_selected_device_are_found(shell: command_line.CommandLine, device_class: str, kind: str) -> None:
    for requests, severity, word in ((("r",), "error", "refuses to prepare"), ((), "warning", "has no effect")):
        (finding,) = lint(shell, claim(device_class, kind, *requests))
        assert (finding["severity"], finding["field"]) == (severity, "spec.devices.config[0].opaque.parameters")
        assert f"{kind} fits none" in finding["message"]
        assert word in finding["message"]


@pytest.mark.parametrize("device_class, kind", [("gpu.drakit.dev", "GpuConfig"), ("mig.drakit.dev", "MigConfig")])
def test_parameters_that_fit_are_fine(shell: command_line.CommandLine, device_class: str, kind: str) -> None:
    assert lint(shell, claim(device_class, kind, "r")) == []


def test_each_type_of_device_has_a_kind_of_parameters() -> None:
    types = {value for name, value in vars(attributes).items() if name.startswith("TYPE_")}
    rules = config.rules()
    for kind in types:
        assert [rules.fits(made, {"type": kind}) for made in (config.GpuConfig(), config.MigConfig())].count(True) == 1
