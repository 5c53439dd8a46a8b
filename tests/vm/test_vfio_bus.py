"""The kernel's PCI bus keeps the contract of the mock one, and what must stay with the host is refused."""

import subprocess
from collections.abc import Iterator

import pytest

from contract import vfio_bus_contract
from drakit import vfio
from drakit.core import errors
from drakit.vfio import checks, kernel
from vm import vfio_machine


@pytest.fixture(scope="module")
def functions() -> Iterator[tuple[str, ...]]:
    with vfio_machine.virtual_functions() as made:
        yield made


class TestKernelBus(vfio_bus_contract.BusContract):
    @pytest.fixture
    def bench(self, functions: tuple[str, ...]) -> vfio_bus_contract.Bench:
        return vfio_bus_contract.Bench(kernel.KernelBus(), functions[0], "igbvf")


def test_a_bound_group_is_viable_and_open_only_while_a_process_has_it(functions: tuple[str, ...]) -> None:
    bus = kernel.KernelBus()
    planned = vfio.plan(bus, functions[0])
    vfio.bind(bus, planned)
    _, group = vfio.nodes(bus, planned)
    with vfio_machine.opened(group.path) as is_viable:
        assert is_viable
        assert bus.is_open(planned.group)
        with pytest.raises(errors.DeviceBusyError, match=rf"a process has {group.path} open; end the virtual machine"):
            vfio.release(bus, planned)
        assert vfio.is_bound(bus, planned)
    vfio.release(bus, planned)
    function = bus.function(functions[0])
    assert function is not None
    assert (function.driver, function.override) == ("igbvf", "")


def refused(address: str) -> str:
    refusal = vfio.refusal(kernel.KernelBus(), address)
    return "" if refusal is None else refusal.reason


def test_a_physical_function_with_virtual_ones_is_refused(functions: tuple[str, ...]) -> None:
    assert refused(vfio_machine.address_of("igb")) == f"has {len(functions)} virtual functions"


def test_the_boot_disk_is_refused() -> None:
    disks = [function.address for function in kernel.KernelBus().functions() if "vda" in refused(function.address)]
    assert [refused(address) for address in disks] == ["has the disk vda"]


def test_a_group_with_other_devices_of_the_host_is_refused() -> None:
    bus = kernel.KernelBus()
    smbus = next(function for function in bus.functions() if function.code >> 8 == 0x0C05)
    assert f"shares IOMMU group {smbus.group} with {smbus.slot}.0" in refused(smbus.address)


@pytest.mark.parametrize("version,address", [("-4", "192.0.2.1/24"), ("-6", "2001:db8::1/64")])
def test_a_function_whose_interface_has_an_address_is_refused(functions: tuple[str, ...], version: str, address: str) -> None:
    (name,) = vfio_machine.interfaces_of(functions[1])
    subprocess.run(["ip", version, "address", "add", address, "dev", name], check=True)
    try:
        assert refused(functions[1]) == f"has the interface {name}, which has an address of the host"
    finally:
        subprocess.run(["ip", "address", "flush", "dev", name, "scope", "global"], check=True)
    assert refused(functions[1]) == ""


def test_a_function_whose_interface_has_a_route_or_carries_another_is_refused(functions: tuple[str, ...]) -> None:
    (name,) = vfio_machine.interfaces_of(functions[1])
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    subprocess.run(["ip", "route", "add", "198.51.100.0/24", "dev", name], check=True)
    assert refused(functions[1]) == f"has the interface {name}, which has a route of the host"
    subprocess.run(["ip", "route", "del", "198.51.100.0/24", "dev", name], check=True)
    subprocess.run(["ip", "link", "add", "vfiovlan", "link", name, "type", "vlan", "id", "7"], check=True)
    assert refused(functions[1]) == f"has the interface {name}, which carries vfiovlan"
    subprocess.run(["ip", "link", "del", "vfiovlan"], check=True)
    assert refused(functions[1]) == ""


def test_a_kernel_without_iommufd_names_the_setting(functions: tuple[str, ...]) -> None:
    bus = kernel.KernelBus()
    planned = vfio.plan(bus, functions[0])
    vfio.bind(bus, planned)
    try:
        with pytest.raises(errors.HardwareError, match="set vfio_nodes to group"):
            vfio.nodes(bus, planned, iommufd=True)
    finally:
        vfio.release(bus, planned)


def test_doctor_names_the_iommu_the_driver_and_what_could_be_passed(functions: tuple[str, ...]) -> None:
    told = checks.of_node(kernel.KernelBus(), lambda function: function.code >> 16 == 2, setting="nic.vfio", is_on=True)
    messages = {finding.subject: finding.message for finding in told}
    assert (messages["IOMMU"], messages["vfio-pci"]) == ("is on", "is loaded")
    assert functions[1] in messages["devices"]
    assert messages[vfio_machine.address_of("igb")].startswith("cannot be passed: it has ")
