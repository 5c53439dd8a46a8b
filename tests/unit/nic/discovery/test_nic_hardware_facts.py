"""What sysfs and netlink say of virtual functions, from trees and messages written by the test; untried on hardware."""

import pathlib

import pytest

from drakit import settings
from drakit.core import errors
from drakit_nic import options, port
from drakit_nic.discovery import hardware


@pytest.fixture
def sysfs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A physical function with two virtual ones."""
    devices = tmp_path / "devices"
    for bus_id in ("0000:0c:00.0", "0000:0c:00.2", "0000:0c:00.3"):
        (devices / bus_id).mkdir(parents=True)
        (devices / bus_id / "vendor").write_text("0x15b3\n")
    (devices / "0000:0c:00.0" / "sriov_totalvfs").write_text("8\n")
    for number, bus_id in enumerate(("0000:0c:00.2", "0000:0c:00.3")):
        (devices / "0000:0c:00.0" / f"virtfn{number}").symlink_to(devices / bus_id)
        (devices / bus_id / "physfn").symlink_to(devices / "0000:0c:00.0")
    return tmp_path


def test_a_virtual_function_knows_its_parent_and_number(sysfs: pathlib.Path) -> None:
    function = hardware.pci_function("0000:0c:00.3", sysfs / "devices")
    assert (function.physical_function, function.function_number, function.vendor) == ("0000:0c:00.0", 1, "15b3")
    parent = hardware.pci_function("0000:0c:00.0", sysfs / "devices")
    assert (parent.physical_function, parent.function_number, parent.virtual_functions) == ("", None, 8)


INTERFACE = port.Interface(ifindex=3, name="eth1", mtu=1500, driver="mlx5_core", pci=port.PciFunction(bus_id="0000:8a:00.0", vendor="15b3"))


@pytest.mark.parametrize("glob", ["eth?", "pci:0000:8a:*", "pci:0000:8A:00.0", "driver:mlx5_*", "vendor:15b3", "vendor:15B3"])
def test_an_interface_is_matched_by_name_place_driver_or_vendor(glob: str) -> None:
    assert options.matches(INTERFACE, (glob,))
    assert options.NicOptions(rules=(options.NicRule(match=glob),)).rule_for(INTERFACE).match == glob


@pytest.mark.parametrize("glob", ["ens*", "pci:0000:8b:*", "driver:e1000*", "vendor:8086", "driver:eth1"])
def test_what_does_not_match_is_left(glob: str) -> None:
    assert not options.matches(INTERFACE, (glob,))
    assert not options.matches("eth1", (glob,))


@pytest.mark.parametrize("key", ["include", "exclude", "take_over", "whole"])
def test_a_prefix_nobody_knows_is_refused(key: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"'mac:02:\*' begins with none of pci:, driver:, vendor:"):
        settings.load({f"nic.{key}": ["mac:02:*"]}, environ={})


def test_the_rdma_devices_of_a_function_are_found_by_its_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "0000:0c:00.0" / "infiniband" / "mlx5_0").mkdir(parents=True)
    assert hardware.rdma_names("0000:0c:00.0", tmp_path) == ("mlx5_0",)
    assert hardware.rdma_names("0000:0c:00.1", tmp_path) == ()
