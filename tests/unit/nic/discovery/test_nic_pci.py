"""The PCI function behind an interface, from a tree like the kernel's."""

import pathlib

import pytest

from drakit_nic import port
from drakit_nic.discovery import hardware


@pytest.fixture
def devices(tmp_path: pathlib.Path) -> pathlib.Path:
    physical = tmp_path / "devices/pci0000:80/0000:80:01.0/0000:8a:00.0"
    virtual = tmp_path / "devices/pci0000:80/0000:80:01.0/0000:8a:00.4"
    for folder, node in ((physical, "1"), (virtual, "-1")):
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    (physical / "sriov_totalvfs").write_text("8\n")
    (virtual / "physfn").symlink_to("../0000:8a:00.0")
    bus = tmp_path / "bus"
    bus.mkdir()
    for folder in (physical, virtual):
        (bus / folder.name).symlink_to(folder)
    return bus


def test_a_physical_function_is_described(devices: pathlib.Path) -> None:
    assert hardware.pci_function("0000:8a:00.0", devices) == port.PciFunction(
        bus_id="0000:8a:00.0", root="pci0000:80", numa_nodes=(1,), virtual_functions=8
    )


def test_a_virtual_function_names_its_parent_and_no_node_is_unknown(devices: pathlib.Path) -> None:
    assert hardware.pci_function("0000:8a:00.4", devices) == port.PciFunction(
        bus_id="0000:8a:00.4", root="pci0000:80", physical_function="0000:8a:00.0"
    )


def test_a_function_that_is_not_there_has_no_facts(devices: pathlib.Path) -> None:
    assert hardware.pci_function("0000:ff:00.0", devices) == port.PciFunction(bus_id="0000:ff:00.0")
