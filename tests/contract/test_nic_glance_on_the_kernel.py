"""A look at one interface tells what a look at all of them does, except uses by others, on the real kernel."""

import dataclasses
from collections.abc import Iterator

import pytest

from drakit_nic import kernel_port
from fakes import netns

pytestmark = pytest.mark.root


@pytest.fixture
def node() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("nic0", mac="02:00:00:00:00:20", mtu=9000)
        yield made


def test_reading_one_interface_gives_the_same_as_reading_all(node: netns.Namespace) -> None:
    node.ip("link", "set", "lo", "up")
    node.ip("address", "add", "10.1.0.1/24", "dev", "nic0")
    node.ip("link", "property", "add", "dev", "nic0", "altname", "a-rather-long-alternative-name")
    node.ip("link", "property", "add", "dev", "nic0", "altname", "other")
    node.ip("link", "add", "br0", "type", "bridge")
    node.ip("link", "add", "child0", "link", "nic0", "type", "macvlan")
    node.ip("link", "set", "child0", "master", "br0")
    node.ip("link", "set", "br0", "up")
    node.ip("link", "add", "down0", "type", "ifb")
    node.ip("route", "add", "default", "via", "10.1.0.2")
    node.ip("route", "add", "default", "dev", "br0", "metric", "77", "table", "9")
    node.ip("route", "add", "10.2.0.0/16", "dev", "nic0-wire")
    node.run("tc", "qdisc", "add", "dev", "child0", "root", "handle", "7:", "htb")
    nics = kernel_port.KernelPort(node.name)
    every = [dataclasses.replace(interface, used="") for interface in nics.interfaces()]
    assert {"lo", "nic0", "nic0-wire", "br0", "child0", "down0"} == {interface.name for interface in every}
    for interface in every:
        assert nics.interface(interface.name) == interface
    by_name = {interface.name: interface for interface in every}
    assert [by_name[name].default_route for name in ("nic0", "br0", "nic0-wire")] == [True, True, False]
    assert by_name["nic0"].altnames == ("a-rather-long-alternative-name", "other")
    assert by_name["child0"].queueing == "htb 7:"


@pytest.mark.parametrize("name", ["nobody", "other", "a-name-longer-than-the-kernel-s"])
def test_an_unknown_interface_name_finds_nothing(node: netns.Namespace, name: str) -> None:
    node.ip("link", "property", "add", "dev", "nic0", "altname", "other")
    assert kernel_port.KernelPort(node.name).interface(name) is None
