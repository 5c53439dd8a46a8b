"""Names of NIC devices are stable for hardware and readable for the rest."""

import pytest

from drakit_nic import port
from drakit_nic.discovery import device_names


def nic(index: int, name: str, bus_id: str = "", kind: str = port.PHYSICAL) -> port.Interface:
    pci = port.PciFunction(bus_id=bus_id) if bus_id else None
    return port.Interface(ifindex=index, name=name, mtu=1500, pci=pci, kind=kind)


@pytest.mark.parametrize(
    "interface, expected",
    [
        (nic(1, "enp138s0f0", "0000:8a:00.0"), "pci-0000-8a-00-0"),
        (nic(1, "enp138s0f0", "0000:8A:00.1"), "pci-0000-8a-00-1"),
        (nic(1, "veth0", kind="veth"), "veth0"),
        (nic(1, "eth0"), "eth0"),
        (nic(1, "eth0.100", kind="vlan"), "net-mv2gqmbogeyda"),
        (nic(1, "ETH0", kind="veth"), "net-ivkeqma"),
        (nic(1, "pci-0000", kind="veth"), "net-obrwsljqgayda"),
        (nic(1, "net-x", kind="veth"), "net-nzsxilly"),
    ],
)
def test_a_name_says_where_the_hardware_is_or_what_the_interface_is_called(interface: port.Interface, expected: str) -> None:
    assert list(device_names.by_name([interface])) == [expected]


def test_a_rename_keeps_the_device_of_hardware() -> None:
    assert list(device_names.by_name([nic(3, "eth0", "0000:8a:00.0")])) == list(device_names.by_name([nic(7, "lan", "0000:8a:00.0")]))


def test_of_several_interfaces_of_one_function_the_oldest_has_its_name() -> None:
    pair = [nic(9, "rep0", "0000:8a:00.0"), nic(4, "uplink", "0000:8a:00.0")]
    assert {name: interface.name for name, interface in device_names.by_name(pair).items()} == {
        "pci-0000-8a-00-0": "uplink",
        "rep0": "rep0",
    }
