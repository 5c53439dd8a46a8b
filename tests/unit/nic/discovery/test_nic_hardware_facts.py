"""What sysfs and netlink say of virtual functions and RDMA, from trees and messages written by the test; untried on hardware."""

import pathlib
import struct

import hypothesis
import pytest
from hypothesis import strategies

from drakit import settings
from drakit.core import edits, errors
from drakit_nic import options, port
from drakit_nic.discovery import hardware
from drakit_nic.netlink import rtnetlink
from drakit_nic.passthrough import sriov


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


RATES = strategies.integers(0, 4 * 10**5).map(lambda mega: mega * 10**6)


@hypothesis.given(
    strategies.integers(0, 255),
    strategies.binary(min_size=6, max_size=6),
    strategies.integers(0, 4094),
    strategies.integers(0, 7),
    RATES,
    RATES,
)
def test_a_function_s_settings_survive_the_message(number: int, mac: bytes, vlan: int, quality: int, least: int, most: int) -> None:
    wanted = sriov.Settings(mac=mac.hex(":"), vlan=vlan, quality=quality, min_rate=least, max_rate=most)
    other = sriov.encode(256, sriov.Settings(mac="02:00:00:00:00:01"))
    assert sriov.parse(other + sriov.encode(number, wanted))[1] == (number, wanted)


def test_the_message_is_as_the_kernel_s_header_says() -> None:
    """linux/if_link.h: ifla_vf_mac {u32 vf; u8 mac[32]}, ifla_vf_vlan {u32 vf, vlan, qos}, ifla_vf_rate {u32 vf, min, max in Mbit/s}."""
    encoded = sriov.encode(3, sriov.Settings(mac="02:ee:00:00:00:01", vlan=7, min_rate=10**10, max_rate=2 * 10**10))
    assert struct.unpack_from("=HH", encoded) == (len(encoded), 1)
    result = rtnetlink.attributes(encoded[4:])
    assert result[1][:10] == struct.pack("=I", 3) + bytes.fromhex("02ee00000001")
    assert len(result[1]) == 36
    assert struct.unpack("=III", result[2]) == (3, 7, 0)
    assert struct.unpack("=III", result[6]) == (3, 10_000, 20_000)


def test_rates_are_whole_megabits_and_a_guarantee_is_never_more_than_asked() -> None:
    before = sriov.Settings(mac="02:00:00:00:00:01", vlan=5)
    assert sriov.wanted(before, mac="", vlan=None, min_rate=10_500_000, max_rate=500_000) == sriov.Settings(
        mac="02:00:00:00:00:01", vlan=5, min_rate=10_000_000, max_rate=1_000_000
    )


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
