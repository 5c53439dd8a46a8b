"""``drakit.pci`` gives the standard attributes and ids of a PCI function, as sysfs has them."""

import pathlib

import pytest

import drakit
from drakit import pci

ADDRESS = "0000:3b:00.0"


def sysfs(folder: pathlib.Path, *, above: str = "devices/pci0000:3a/0000:3a:00.0", numa_node: str = "1\n") -> pathlib.Path:
    """A tree like that of a card behind a root port."""
    own = folder / above / ADDRESS
    own.mkdir(parents=True)
    facts = {"vendor": "0x10DE", "device": "0x20b5", "subsystem_vendor": "0x10de", "subsystem_device": "0x1533", "class": "0x030200"}
    for name, text in (facts | {"numa_node": numa_node}).items():
        (own / name).write_text(f"{text}\n")
    (folder / "bus/pci/devices").mkdir(parents=True)
    (folder / "bus/pci/devices" / ADDRESS).symlink_to(own)
    return folder


def test_the_standard_attributes_are_those_that_claims_match(tmp_path: pathlib.Path) -> None:
    found = pci.attributes(ADDRESS.upper(), sysfs=sysfs(tmp_path))
    assert found == {
        "resource.kubernetes.io/pciBusID": ADDRESS,
        "resource.kubernetes.io/pcieRoot": "pci0000:3a",
        "resource.kubernetes.io/numaNode": 1,
    }
    assert drakit.Device(name="card-0", attributes=found).attributes == found


def test_the_root_is_found_below_a_platform_and_an_unknown_numa_node_is_left_out(tmp_path: pathlib.Path) -> None:
    root = sysfs(tmp_path, above="devices/platform/soc/40000000.pcie/pci0001:00/0001:00:00.0", numa_node="-1\n")
    assert pci.attributes(ADDRESS, sysfs=root) == {pci.BUS_ID: ADDRESS, pci.ROOT: "pci0001:00"}


def test_the_ids_are_lower_case_hexadecimal_without_prefix(tmp_path: pathlib.Path) -> None:
    assert pci.ids(ADDRESS, sysfs=sysfs(tmp_path)) == pci.Ids(
        vendor="10de", device="20b5", subsystem_vendor="10de", subsystem_device="1533", class_code="030200"
    )


@pytest.mark.parametrize(
    "address, message",
    [
        ("3b:00.0", r"'3b:00.0' is not DOMAIN:BUS:DEVICE.FUNCTION, such as 0000:3b:00.0"),
        ("../../x", "is not DOMAIN:BUS:DEVICE.FUNCTION"),
        ("0000:3b:00.1", "this host has no PCI function 0000:3b:00.1: No such file or directory"),
    ],
)
def test_a_wrong_address_is_named(tmp_path: pathlib.Path, address: str, message: str) -> None:
    with pytest.raises(drakit.HardwareError, match=message):
        pci.attributes(address, sysfs=sysfs(tmp_path))
