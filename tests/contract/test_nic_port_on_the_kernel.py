"""What only the real kernel can show of the netlink port. NICs are veth ends in namespaces of the test's own."""

import asyncio
import contextlib
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit_nic import kernel_port, port
from fakes import netns, waits

pytestmark = pytest.mark.root

OWN = pathlib.Path("/proc/thread-self/ns/net")
DESCRIPTORS = pathlib.Path("/proc/self/fd")


@pytest.fixture
def own() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("nic0", mac="02:00:00:00:00:20")
        yield made


def read(own: netns.Namespace) -> dict[str, port.Interface]:
    return {interface.name: interface for interface in kernel_port.KernelPort(own.name).interfaces()}


def test_a_namespace_is_given_by_name_path_or_descriptor(own: netns.Namespace) -> None:
    expected = kernel_port.KernelPort(own.name).interfaces()
    assert "nic0" in {interface.name for interface in expected}
    assert kernel_port.KernelPort(own.path).interfaces() == expected
    descriptor = os.open(own.path, os.O_RDONLY)
    try:
        assert kernel_port.KernelPort(descriptor).interfaces() == expected
        assert kernel_port.KernelPort(descriptor).interfaces() == expected, "the descriptor stays open"
    finally:
        os.close(descriptor)


def test_links_are_listed_from_within_an_event_loop() -> None:
    async def listed() -> set[str]:
        return {interface.name for interface in kernel_port.KernelPort().interfaces()}

    assert asyncio.run(listed()) == {name for _, name in socket.if_nameindex()}


def test_without_a_namespace_the_process_s_own_is_read(own: netns.Namespace) -> None:
    names = {interface.name for interface in kernel_port.KernelPort().interfaces()}
    assert names == {name for _, name in socket.if_nameindex()}
    assert "nic0" not in names


def test_no_thread_of_the_process_is_left_in_another_namespace(own: netns.Namespace) -> None:
    before = (OWN.readlink(), threading.active_count())
    read(own)
    assert (OWN.readlink(), threading.active_count()) == before
    deadline = time.monotonic() + waits.SECONDS  # A joined thread is still being taken down by the kernel for a moment.
    while time.monotonic() < deadline and spaces_of_threads() != {before[0]}:
        pass
    assert spaces_of_threads() == {before[0]}


def spaces_of_threads() -> set[pathlib.Path]:
    spaces = set()
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            spaces.add((task / "ns/net").readlink())
    return spaces


def test_reading_keeps_no_descriptor_open(own: netns.Namespace) -> None:
    read(own)
    before = len(list(DESCRIPTORS.iterdir()))
    for _ in range(10):
        read(own)
    assert len(list(DESCRIPTORS.iterdir())) == before


def test_reading_changes_nothing(own: netns.Namespace) -> None:
    before = own.state()
    read(own)
    assert own.state() == before


def test_a_veth_is_distinguished_from_hardware_and_its_peer_is_not_below_it(own: netns.Namespace) -> None:
    nic = read(own)["nic0"]
    assert (nic.kind, nic.driver, nic.pci, nic.lower) == ("veth", "veth", None, None)
    assert nic.speed == 10 * 10**9, "what a veth claims, which the model does not believe"
    assert read(own)["lo"].kind == port.LOOPBACK


def test_links_above_and_below_are_seen(own: netns.Namespace) -> None:
    own.ip("link", "add", "br0", "type", "bridge")
    own.ip("link", "set", "nic0", "master", "br0")
    own.make_nic("nic1", mac="02:00:00:00:00:21")
    own.ip("link", "add", "child", "link", "nic1", "type", "macvlan", "mode", "private")
    interfaces = read(own)
    assert interfaces["nic0"].master == interfaces["br0"].ifindex
    assert interfaces["br0"].kind == "bridge"
    assert (interfaces["child"].kind, interfaces["child"].lower) == ("macvlan", interfaces["nic1"].ifindex)
    assert interfaces["nic1"].master is None


def test_a_parent_in_another_namespace_is_not_taken_for_one_here(own: netns.Namespace) -> None:
    with netns.namespace() as pod:
        own.ip("link", "add", "child", "link", "nic0", "type", "macvlan")
        own.ip("link", "set", "child", "netns", pod.name)
        assert read(pod)["child"].lower is None


def test_only_addresses_of_global_scope_count(own: netns.Namespace) -> None:
    own.make_nic("nic1", mac="02:00:00:00:00:21")
    own.make_nic("nic2", mac="02:00:00:00:00:22")
    own.ip("address", "add", "169.254.7.7/16", "scope", "link", "dev", "nic0")
    own.ip("address", "add", "10.1.0.2/24", "dev", "nic1")
    if netns.HAS_IPV6:
        own.ip("address", "add", "fd00::2/64", "dev", "nic2", "nodad")
    assert {name for name, interface in read(own).items() if interface.addressed} == {"nic1", *(["nic2"] if netns.HAS_IPV6 else [])}


@pytest.mark.parametrize(
    "words",
    [
        ("route", "add", "default", "dev", "nic0"),
        ("route", "add", "default", "dev", "nic0", "metric", "4000"),
        ("route", "add", "default", "dev", "nic0", "table", "100"),
        ("route", "add", "default", "nexthop", "dev", "nic0", "nexthop", "dev", "nic0-wire"),
        *([("-6", "route", "add", "default", "dev", "nic0")] if netns.HAS_IPV6 else []),
    ],
    ids=" ".join,
)
def test_every_form_of_default_route_marks_its_interface(own: netns.Namespace, words: tuple[str, ...]) -> None:
    own.make_nic("nic1", mac="02:00:00:00:00:21")
    own.ip(*words)
    interfaces = read(own)
    assert interfaces["nic0"].default_route
    assert not interfaces["nic1"].default_route


def test_routes_that_are_no_way_out_mark_nothing(own: netns.Namespace) -> None:
    own.ip("route", "add", "10.9.0.0/16", "dev", "nic0")
    own.ip("route", "add", "unreachable", "default", "metric", "9000")
    assert not any(interface.default_route for interface in read(own).values())


@pytest.mark.parametrize("name", ["ETH0", "eth0.100", "n\u00e9t", "a@b", "x" * 15])
def test_any_name_the_kernel_takes_is_read(own: netns.Namespace, name: str) -> None:
    own.ip("link", "set", "nic0", "down")
    own.ip("link", "set", "nic0", "name", name)
    assert read(own)[name].mac == "02:00:00:00:00:20"
    assert read(own)[name].driver == "veth"


def test_alternative_names_are_read(own: netns.Namespace) -> None:
    own.ip("link", "property", "add", "dev", "nic0", "altname", "a-name-longer-than-fifteen", "altname", "other")
    assert set(read(own)["nic0"].altnames) == {"a-name-longer-than-fifteen", "other"}
    assert kernel_port.KernelPort(own.name).interface("other") is None, "an alternative name is not the name"


def test_the_transmit_queues_of_an_interface_are_counted(own: netns.Namespace) -> None:
    own.make_nic("nic1", mac="02:00:00:00:00:21", queues=8)
    assert read(own)["nic1"].transmit_queues == 8
    single = kernel_port.KernelPort(own.name).interface("nic1")
    assert single is not None
    assert single.transmit_queues == 8


def test_a_nic_without_carrier_says_so(own: netns.Namespace) -> None:
    own.ip("link", "set", "nic0-wire", "down")
    deadline = time.monotonic() + waits.SECONDS  # The kernel tells of it a moment later.
    while read(own)["nic0"].state == "up" and time.monotonic() < deadline:
        pass
    nic = read(own)["nic0"]
    assert (nic.carrier, nic.state, nic.up) == (False, "lowerlayerdown", True)
    own.ip("link", "set", "nic0", "down")
    assert not read(own)["nic0"].up


def test_interfaces_that_come_and_go_during_the_read_do_no_harm(own: netns.Namespace) -> None:
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            own.ip("link", "add", "brief", "type", "bridge")
            own.ip("link", "delete", "brief")

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        for _ in range(30):
            assert "nic0" in read(own)
    finally:
        done.set()
        worker.join()


def test_a_file_that_is_no_namespace_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(errors.HardwareError) as refused:
        kernel_port.KernelPort(str(tmp_path / "plain")).interfaces()
    assert refused.value.call == "setns"
