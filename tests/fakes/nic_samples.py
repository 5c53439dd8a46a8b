"""A NIC of a namespace, and shares of it, as the port of NICs is told of them."""

import socket

from drakit_nic import port
from fakes import netns, nic_network

MAC = "02:00:00:00:00:20"


def index(own: netns.Namespace) -> int:
    """The index of ``nic0``."""
    return nic_network.inside(own, lambda: socket.if_nametoindex("nic0"))


def uplink(own: netns.Namespace, speed: int = 10**10) -> port.Uplink:
    return port.Uplink(interface="nic0", ifindex=index(own), mac=MAC, speed=speed, reserve=10**8)


def share(own: netns.Namespace, number: int = 1, bandwidth: int = 10**8) -> port.Share:
    mac = f"02:11:22:33:44:{number:02x}"
    return port.Share(id=f"share-{number}", interface="nic0", ifindex=index(own), mac=mac, bandwidth=bandwidth, minor=0x100 + number)
