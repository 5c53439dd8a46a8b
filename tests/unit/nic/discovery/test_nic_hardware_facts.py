"""What sysfs and netlink say of virtual functions and RDMA, from trees and messages written by the test; untried on hardware."""

import pathlib

import pytest

from drakit.core import edits, errors
from drakit_nic import port, settings
from drakit_nic.discovery import hardware


@pytest.fixture
def sysfs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A physical function with two virtual ones, of which the second has an RDMA device."""
    devices = tmp_path / "devices"
    for bus_id in ("0000:0c:00.0", "0000:0c:00.2", "0000:0c:00.3"):
        (devices / bus_id).mkdir(parents=True)
        (devices / bus_id / "vendor").write_text("0x15b3\n")
    (devices / "0000:0c:00.0" / "sriov_totalvfs").write_text("8\n")
    for number, bus_id in enumerate(("0000:0c:00.2", "0000:0c:00.3")):
        (devices / "0000:0c:00.0" / f"virtfn{number}").symlink_to(devices / bus_id)
        (devices / bus_id / "physfn").symlink_to(devices / "0000:0c:00.0")
    verbs = tmp_path / "class"
    (verbs / "infiniband" / "mlx5_1").mkdir(parents=True)
    (verbs / "infiniband" / "mlx5_1" / "device").symlink_to(devices / "0000:0c:00.3")
    for number, device in enumerate(("mlx5_0", "mlx5_1")):
        (verbs / "infiniband_verbs" / f"uverbs{number}").mkdir(parents=True)
        (verbs / "infiniband_verbs" / f"uverbs{number}" / "ibdev").write_text(f"{device}\n")
    return tmp_path


def test_a_virtual_function_knows_its_parent_and_number(sysfs: pathlib.Path) -> None:
    function = hardware.pci_function("0000:0c:00.3", sysfs / "devices", sysfs / "class")
    assert (function.physical_function, function.function_number, function.vendor, function.rdma_device) == (
        "0000:0c:00.0",
        1,
        "15b3",
        "mlx5_1",
    )
    parent = hardware.pci_function("0000:0c:00.0", sysfs / "devices", sysfs / "class")
    assert (parent.physical_function, parent.function_number, parent.virtual_functions, parent.rdma_device) == ("", None, 8, "")


def test_an_rdma_device_comes_with_its_nodes(sysfs: pathlib.Path) -> None:
    nodes = hardware.rdma_nodes_of("mlx5_1", sysfs / "class")
    assert nodes == tuple(edits.DeviceNode(path=f"/dev/infiniband/{name}", permissions="rw") for name in ("uverbs1", "rdma_cm"))
    assert hardware.rdma_nodes_of("mlx5_7", sysfs / "class") == hardware.rdma_nodes_of("", sysfs / "class") == ()


def test_a_machine_without_rdma_has_none(tmp_path: pathlib.Path) -> None:
    assert hardware.rdma_device_of("0000:0c:00.0", tmp_path) == ""
    assert hardware.rdma_nodes_of("mlx5_0", tmp_path) == ()


INTERFACE = port.Interface(ifindex=3, name="eth1", mtu=1500, driver="mlx5_core", pci=port.PciFunction(bus_id="0000:8a:00.0", vendor="15b3"))


@pytest.mark.parametrize("glob", ["eth?", "pci:0000:8a:*", "pci:0000:8A:00.0", "driver:mlx5_*", "vendor:15b3", "vendor:15B3"])
def test_an_interface_is_matched_by_name_place_driver_or_vendor(glob: str) -> None:
    assert settings.matches(INTERFACE, (glob,))
    assert settings.NicSettings(interfaces=(settings.InterfaceRule(match=glob),)).rule_for(INTERFACE).match == glob


@pytest.mark.parametrize("glob", ["ens*", "pci:0000:8b:*", "driver:e1000*", "vendor:8086", "driver:eth1"])
def test_what_does_not_match_is_left(glob: str) -> None:
    assert not settings.matches(INTERFACE, (glob,))
    assert not settings.matches("eth1", (glob,))


@pytest.mark.parametrize("key", ["include", "exclude", "take_over", "whole"])
def test_a_prefix_nobody_knows_is_refused(key: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"'mac:02:\*' begins with none of pci:, driver:, vendor:"):
        settings.NicSettings(**{key: ("mac:02:*",)})  # type: ignore[arg-type]
