"""Sysctls of an interface in a pod, also where the runtime gave the driver a read-only /proc/sys."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from drakit_nic import sysctls
from drakit_nic.netlink import interface_sysctls
from fakes import netns, waits

pytestmark = pytest.mark.root

WRITE = """
import os, sys
from drakit_nic import sysctls
from drakit_nic.netlink import interface_sysctls
before = os.stat("/proc/thread-self/ns/net").st_ino, os.stat("/proc/thread-self/ns/mnt").st_ino
descriptor = os.open(sys.argv[1], os.O_RDONLY)
interface_sysctls.write(descriptor, "net1", {"ipv4.arp_ignore": 2, "ipv4.forwarding": 1})
assert (os.stat("/proc/thread-self/ns/net").st_ino, os.stat("/proc/thread-self/ns/mnt").st_ino) == before
"""
READ_ONLY = (
    'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && ! echo 1 > /proc/sys/net/ipv4/ip_forward && exec "$@"'
)


@pytest.fixture
def pod() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.make_nic("net1", mac="02:00:00:00:00:31")
        # A new namespace begins with what the host has, which may forward because somebody runs containers on it.
        for name in ("all", "net1", "net1-wire"):
            made.run("sh", "-c", f"echo 0 > /proc/sys/net/ipv4/conf/{name}/forwarding; echo 0 > /proc/sys/net/ipv4/conf/{name}/arp_ignore")
        yield made


@pytest.mark.parametrize("before", [[], ["unshare", "-m", "sh", "-c", READ_ONLY, "sh"]], ids=["writable", "read-only"])
def test_sysctls_are_written_for_one_interface_only(pod: netns.Namespace, before: list[str]) -> None:
    subprocess.run([*before, sys.executable, "-c", WRITE, pod.path], check=True, capture_output=True, timeout=waits.SECONDS)
    values = [
        pod.run("cat", f"/proc/sys/net/ipv4/conf/{name}/{leaf}").strip()
        for name in ("net1", "net1-wire")
        for leaf in ("arp_ignore", "forwarding")
    ]
    assert values == ["2", "1", "0", "0"]


IPV4 = sorted(name for name, sysctl in sysctls.TABLE.items() if sysctl.raised_by_all and name.startswith("ipv4."))


@pytest.mark.parametrize("own", [0, 1], ids=["right already", "to be written"])
@pytest.mark.parametrize("name", IPV4)
def test_the_interface_has_its_value_and_others_keep_theirs_when_all_is_lowered(name: str, own: int) -> None:
    leaf = name.removeprefix("ipv4.")
    with netns.namespace() as made:
        folder = "/proc/sys/net/ipv4/conf"
        made.run("sh", "-c", f"echo {own} > {folder}/default/{leaf}; echo 1 > {folder}/all/{leaf}")
        made.make_nic("net1", mac="02:00:00:00:00:31")
        descriptor = os.open(made.path, os.O_RDONLY)
        try:
            interface_sysctls.write(descriptor, "net1", {name: 0})
        finally:
            os.close(descriptor)
        places = ("net1", "all", "net1-wire", "default")
        assert [made.run("cat", f"{folder}/{place}/{leaf}").strip() for place in places] == ["0", "0", "1", "1"]
