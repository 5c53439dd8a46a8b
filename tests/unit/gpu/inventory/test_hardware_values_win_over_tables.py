"""The tables of GPU models describe mock GPUs alone: of a real one, what it tells is published, counted and prepared, whatever a table has."""

import ast
import dataclasses
import pathlib
from collections.abc import Sequence

from drakit import machines
from drakit.core import quantity
from drakit_gpu import driver, port
from drakit_gpu.mock import machine, mock_gpus
from fakes import gpu_node

PACKAGE = pathlib.Path(mock_gpus.__file__).parents[1]
TOLD_MIB = 20992  # 20.50 GiB, as one public listing of a B200 has it


class OtherFigures(mock_gpus.MockGpus):
    """GPUs that tell another size of their smallest profile than the table of their model."""

    def gpu_instance_profiles(self, gpu: port.GpuUuid) -> Sequence[port.GpuInstanceProfile]:
        return [
            dataclasses.replace(profile, memory_mib=TOLD_MIB) if profile.name.startswith("1g.23gb") else profile
            for profile in super().gpu_instance_profiles(gpu)
        ]


def test_a_reported_size_that_differs_from_the_table_is_used_everywhere(tmp_path: pathlib.Path) -> None:
    hardware = OtherFigures(machines.Choice(name="hgx-b200", directory=tmp_path / "machine", owner="node-a"))
    (table,) = [profile for profile, _ in machine.load_model("b200-sxm6-180gb").profiles.values() if profile.name == "1g.23gb"]
    assert table.memory_mib != TOLD_MIB
    devices = driver.GpuDriver(hardware).discover().flat().by_name()
    device = devices["gpu-0-mig-1g23gb-19-6"]
    result = quantity.Quantity.binary(TOLD_MIB << 20)
    assert device.capacity["memory"].value == result
    (consumed,) = device.consumes
    assert consumed.counters["memory"] == result
    node = gpu_node.GpuNode(tmp_path / "machine", "hgx-b200")
    node.driver = driver.GpuDriver(hardware, intents=node.intents)
    assert node.prepare("gpu-0-mig-1g23gb-19-6").record["uuid"]
    node.unprepare()


def test_only_mock_machines_read_the_tables() -> None:
    importers = set()
    for file in PACKAGE.rglob("*.py"):
        imports = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom))
        names = {name.name for node in imports if node.module == "drakit_gpu.mock" for name in node.names}
        if "machine" in names:
            importers.add(file.name)
    assert importers == {"mock_gpus.py", "rules.py"}, "the mock hardware"
