"""Which RDMA device is an interface's, and what a claim gets of it. The kernel's part is in tests/vm/test_rdma_devices.py."""

import pathlib

import pytest

from drakit_nic import port
from drakit_nic.discovery import attributes
from drakit_nic.netlink import rdma_requests
from drakit_nic.passthrough import rdma_devices

ETH, BUS_ID = 7, "0000:0c:00.3"


@pytest.fixture
def classes(tmp_path: pathlib.Path) -> pathlib.Path:
    """The classes of sysfs with two RDMA devices, the second at the PCI function BUS_ID."""
    (tmp_path / BUS_ID).mkdir()
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    (tmp_path / "infiniband" / "mlx5_1").mkdir()
    (tmp_path / "infiniband" / "mlx5_1" / "device").symlink_to(tmp_path / BUS_ID)
    files = {"infiniband_verbs/uverbs0": "mlx5_0", "infiniband_verbs/uverbs1": "mlx5_1", "infiniband_mad/umad3": "mlx5_1"}
    for path, device in {**files, "infiniband_mad/issm3": "mlx5_1"}.items():
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "ibdev").write_text(f"{device}\n")
    (tmp_path / "infiniband_verbs" / "abi_version").write_text("6\n")
    (tmp_path / "misc" / "rdma_cm").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    "interfaces, is_own",
    [((ETH,), True), ((ETH, ETH), True), ((0,), True), ((), True), ((ETH, 8), False), ((ETH, 0), False), ((8,), False)],
    ids=["its port", "its ports", "unlinked port", "no ports", "a port of another", "a port in a pod", "another's port"],
)
def test_a_device_belongs_to_an_interface_only_with_all_its_ports(
    classes: pathlib.Path, interfaces: tuple[int, ...], *, is_own: bool
) -> None:
    device = rdma_requests.Device(index=4, name="mlx5_1", interfaces=interfaces)
    assert rdma_devices.of_interface(ETH, BUS_ID, [device], classes) == (device if is_own else None)


def test_an_unlinked_device_of_another_pci_function_is_not_the_interfaces(classes: pathlib.Path) -> None:
    unlinked = [rdma_requests.Device(index=index, name=name, interfaces=(0,)) for index, name in ((0, "mlx5_0"), (4, "mlx5_1"))]
    assert rdma_devices.of_interface(ETH, "0000:0c:00.0", unlinked, classes) is None
    assert rdma_devices.of_interface(ETH, BUS_ID, unlinked, classes) == unlinked[1]


def test_the_nodes_are_those_of_verbs_management_and_connections(classes: pathlib.Path) -> None:
    assert rdma_devices.nodes_of("mlx5_1", classes) == ("uverbs1", "umad3", "rdma_cm")
    assert rdma_devices.nodes_of("mlx5_0", classes) == ("uverbs0", "rdma_cm")
    (classes / "misc" / "rdma_cm").rmdir()
    assert rdma_devices.nodes_of("mlx5_0", classes) == ("uverbs0",), "the module rdma_ucm is not loaded"
    assert rdma_devices.nodes_of("mlx5_7", classes) == rdma_devices.nodes_of("", classes) == ()


def test_only_the_whole_form_is_published_with_an_rdma_device() -> None:
    interface = port.Interface(ifindex=3, name="eth0", mtu=1500, pci=port.PciFunction(bus_id=BUS_ID, rdma_device="mlx5_1"))
    published = {
        form: attributes.of(interface, speed=10**9, classifier=port.Classifier.NETNS, form=form)
        for form in (attributes.SHARED, attributes.WHOLE)
    }
    assert {form: (values["dra.net/rdma"], values["dra.net/rdmaDevice"]) for form, values in published.items()} == {
        attributes.SHARED: (False, ""),
        attributes.WHOLE: (True, "mlx5_1"),
    }
