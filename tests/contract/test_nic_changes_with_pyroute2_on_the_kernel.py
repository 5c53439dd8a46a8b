"""Links, addresses and routes changed with pyroute2 on the real kernel: in the socket's namespace, and without leftovers in the process."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from drakit_nic import config
from drakit_nic.netlink import link_requests, namespace_numbers, namespaces, route_requests, rtnetlink
from fakes import netns

OPEN = pathlib.Path("/proc/self/fd")


@pytest.fixture
def node() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("nic0", mac="02:00:00:00:00:20")
        yield made


def index_of(space: netns.Namespace, name: str) -> int:
    return int(str(space.links()[name]["ifindex"]))


def test_deleting_a_pods_link_spares_the_hosts_link_of_the_same_index(node: netns.Namespace) -> None:
    with netns.namespace() as pod, rtnetlink.Socket.open(node.name) as host, namespaces.opened(pod.name) as descriptor:
        index = index_of(node, "nic0")
        pod.ip("link", "add", "child", "index", str(index), "type", "veth", "peer", "name", "other")
        link_requests.delete(host, index, namespace_numbers.assign_nsid(host, descriptor))
        assert "nic0" in node.links()
        assert "child" not in pod.links()


def test_a_change_reaches_the_sockets_namespace_from_any_thread(node: netns.Namespace) -> None:
    def rename() -> None:
        with rtnetlink.Socket.open(node.name) as sock:
            link_requests.alter(sock, link_requests.existing(sock, "nic0").ifindex, up=False, name="nic7")

    with netns.namespace() as elsewhere:
        elsewhere.make_nic("nic0", mac="02:00:00:00:00:21")
        namespaces.run_in(elsewhere.name, rename)
        assert "nic7" in node.links()
        assert "nic7" not in elsewhere.links()


def test_names_that_are_not_utf8_are_written_as_they_were_read(node: netns.Namespace) -> None:
    with rtnetlink.Socket.open(node.name) as sock:
        link = link_requests.existing(sock, "nic0")
        link_requests.alter(sock, link.ifindex, up=False, name="é\udcff", alias="mark \udcfe")
        link_requests.add_altnames(sock, link.ifindex, ["alt\udcfd", "alté"])
        changed = link_requests.at(sock, link.ifindex)
        assert changed is not None
        assert (changed.name, changed.alias, set(changed.altnames)) == ("é\udcff", "mark \udcfe", {"alt\udcfd", "alté"})
        link_requests.alter(sock, link.ifindex, name="nic0", alias="")
        link_requests.delete_altnames(sock, link.ifindex, changed.altnames)
    assert "ifalias" not in node.links()["nic0"]
    assert "altnames" not in node.links()["nic0"]


def test_an_error_has_the_kernels_own_message(node: netns.Namespace) -> None:
    with rtnetlink.Socket.open(node.name) as sock, pytest.raises(OSError, match=r"^\[Errno 101\] .*: Nexthop has invalid gateway$"):
        route_requests.add_route(sock, index_of(node, "nic0"), config.Route(destination="10.77.0.0/16", gateway="10.88.0.1"))


def test_changes_leave_no_descriptors_and_no_threads(node: netns.Namespace) -> None:
    def change() -> None:
        with rtnetlink.Socket.open(node.name) as sock:
            link_requests.add_address(sock, index_of(node, "nic0"), "10.7.0.1/16")
            with pytest.raises(FileExistsError):
                link_requests.create(sock, "nic0", "veth")

    change()
    descriptors, threads = set(OPEN.iterdir()), set(threading.enumerate())
    for _ in range(20):
        change()
    assert set(OPEN.iterdir()) <= descriptors, "those of earlier tests may be closed meanwhile"
    assert set(threading.enumerate()) <= threads


def test_an_alias_of_the_greatest_length_is_set_and_removed() -> None:
    with rtnetlink.Socket.scratch() as sock:
        link_requests.set_alias(sock, 1, "x" * 255)
        assert link_requests.existing(sock, "lo").alias == "x" * 255
        link_requests.set_alias(sock, 1, "")
        assert link_requests.existing(sock, "lo").alias == ""
