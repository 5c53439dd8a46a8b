"""The ResourceSlices of GPU nodes are what the golden files say, to the byte, however often and in whatever process they are made.

Golden files hold the ``spec`` of every slice as it is sent: flat, as every released Kubernetes takes it, or with mixins. ``UPDATE_GOLDEN=1``
writes them.
"""

import hashlib
import json
import os
import pathlib

import pytest

from drakit import machines
from drakit.core import inventory
from drakit.core.slices import feature_gates, paging, resource_slice
from drakit.kube import slice_codec
from drakit_gpu import driver as gpu_driver
from drakit_gpu.inventory import discovery
from drakit_gpu.mock import mock_gpus

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
ONE = """
name: {name}
description: one GPU
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{{model: {model}, pciBusID: "0000:07:00.0", pcieRoot: "pci0000:00", numaNode: 0, moduleID: 1, migMode: {mode}}}]
"""
# By name of the golden file: the model of the only GPU and its MIG mode.
BOARDS = {
    "a100-mig-on": ("a100-sxm4-40gb", "true"),
    "a100-mig-off": ("a100-sxm4-40gb", "false"),
    "h100": ("h100-sxm5-80gb", "false"),
    "a30": ("a30-24gb", "true"),
    "rtx-pro-6000": ("rtx-pro-6000-96gb", "false"),
}
SHIPPED = [
    ("dgx-a100-40gb-2gpu", resource_slice.Form.FLAT),
    ("dgx-a100-40gb-2gpu", resource_slice.Form.MIXINS),
    ("mixed-16gpu", resource_slice.Form.MIXINS),
]
TIMES = [pytest.param(3, id="3"), pytest.param(100, marks=pytest.mark.full, id="100")]


def offers(folder: pathlib.Path, machine: str) -> gpu_driver.GpuDriver:
    hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=folder / "machine", owner="node-a"))
    return gpu_driver.GpuDriver(hardware, options=discovery.DiscoveryOptions(whole_beside_partitions=hardware.whole_beside_partitions))


def sent(offered: inventory.Inventory, form: resource_slice.Form) -> str:
    """All slices of a node for a server with the default gates, as JSON with one device or counter set a line."""
    offered = feature_gates.without_lists(offered)
    pages = paging.paginate(offered.flat() if form is resource_slice.Form.FLAT else offered, form=form, layout=resource_slice.Layout.APART)
    pool = resource_slice.Pool(name="node-a", generation=1, count=len(pages))
    reported = [slice_codec.encode(resource_slice.SliceSpec(driver=gpu_driver.NAME, node="node-a", pool=pool, page=page)) for page in pages]
    lines = [json.dumps(spec).replace('[{"name": ', '[\n{"name": ').replace('}, {"name": ', '},\n{"name": ') for spec in reported]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def check(name: str, reported: set[str]) -> None:
    golden = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(next(iter(reported)))
    assert reported == {golden.read_text()}


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", BOARDS)
def test_a_gpu_of_each_kind_is_sent_as_its_golden_slices(tmp_path: pathlib.Path, name: str, times: int) -> None:
    model, mode = BOARDS[name]
    file = tmp_path / "one.yaml"
    file.write_text(ONE.format(name=name, model=model, mode=mode))
    author = offers(tmp_path, str(file))
    check(f"slices-{name}.json", {sent(author.discover(), resource_slice.Form.FLAT) for _ in range(times)})


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("machine,form", SHIPPED)
def test_a_node_is_sent_as_its_golden_slices(tmp_path: pathlib.Path, machine: str, form: resource_slice.Form, times: int) -> None:
    author = offers(tmp_path, machine)
    check(f"slices-{machine}-{form.value}.json", {sent(author.discover(), form) for _ in range(times)})


def test_sixteen_gpus_are_sent_in_the_flat_golden_form(tmp_path: pathlib.Path) -> None:
    """Half a megabyte, of which only the digest is kept; the form with mixins can be read."""
    reported = sent(offers(tmp_path, "mixed-16gpu").discover(), resource_slice.Form.FLAT)
    check("slices-mixed-16gpu-flat.sha256", {hashlib.sha256(reported.encode()).hexdigest() + "\n"})


def test_counter_sets_are_eight_to_a_slice_and_devices_sixty_four(tmp_path: pathlib.Path) -> None:
    specs = json.loads(sent(offers(tmp_path, "mixed-16gpu").discover(), resource_slice.Form.FLAT))
    sizes = [(len(spec.get("sharedCounters", ())), len(spec.get("devices", ()))) for spec in specs]
    assert [sets for sets, devices in sizes if not devices] == [8, 4]
    assert all(not sets and devices <= 64 for sets, devices in sizes if devices)
    assert sum(devices for _, devices in sizes) == 25 + 1 + 25 + 13 + 1 + 7 * 26 + 2 * 31 + 2
