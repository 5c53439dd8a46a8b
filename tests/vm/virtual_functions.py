"""A NIC with virtual functions, as ``ip`` shows it, and the node of a driver that offers them."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from drakit.core import claim as claims
from drakit.core import quantity, records
from drakit_nic import options as nic_options
from fakes import netns, nic_attach

NETWORK = pathlib.Path("/sys/class/net")
SETTLING_SECONDS = 300
BITS = quantity.Quantity.of
OPTIONS = nic_options.NicOptions(
    include=("driver:igb", "driver:igbvf"),
    whole=("driver:igbvf",),
    rules=(nic_options.NicRule(match="driver:igbvf", speed=BITS("100M")),),
)
ROOMY = dataclasses.replace(OPTIONS, rules=(nic_options.NicRule(match="driver:igb", speed=BITS("400M")), *OPTIONS.rules))
"""The parent has shares beside its virtual functions."""


def ip(*words: str) -> Any:
    """Run ``ip`` and return what it prints as JSON, None if that is nothing."""
    ran = subprocess.run(["ip", "-json", "-details", *words], check=True, capture_output=True, text=True)
    return json.loads(ran.stdout) if ran.stdout.strip() else None


def until(holds: Any, what: str) -> None:
    """Wait until something holds, for as long as an emulated NIC takes."""
    nic_attach.until(holds, what, seconds=SETTLING_SECONDS)


@dataclasses.dataclass(frozen=True)
class Parent:
    """A physical function."""

    name: str

    @property
    def device(self) -> pathlib.Path:
        return NETWORK / self.name / "device"

    def make(self, count: int) -> None:
        """Give it this many virtual functions, and wait for their interfaces."""
        (self.device / "sriov_numvfs").write_text("0")
        if count:
            (self.device / "sriov_numvfs").write_text(str(count))
            subprocess.run(["udevadm", "settle"], check=True)
            until(lambda: len(self.interfaces()) == count, "the virtual functions have no interfaces")

    def interfaces(self) -> list[str]:
        """The interfaces of its virtual functions on the host, by their numbers."""
        folders = sorted(self.device.glob("virtfn*"), key=lambda folder: int(folder.name.removeprefix("virtfn")))
        return [entry.name for folder in folders if (folder / "net").exists() for entry in (folder / "net").iterdir()]

    def functions(self) -> list[dict[str, Any]]:
        """What it enforces on each virtual function."""
        (link,) = ip("link", "show", "dev", self.name)
        listed: list[dict[str, Any]] = link.get("vfinfo_list", [])
        return [{key: value for key, value in function.items() if key != "stats"} for function in listed]


def link_of(name: str) -> dict[str, Any]:
    """What an interface of the host is, as far as a pod can change it. The kernel driver itself may change the permanent address."""
    (link,) = ip("link", "show", "dev", name)
    (addressed,) = ip("address", "show", "dev", name)
    return {
        **{key: link.get(key) for key in ("ifname", "address", "mtu", "ifalias", "qdisc", "promiscuity", "txqlen")},
        "up": "UP" in link["flags"],
        "addresses": [(entry["local"], entry["prefixlen"]) for entry in addressed["addr_info"] if entry["scope"] == "global"],
    }


@contextlib.contextmanager
def parent(count: int = 3) -> Iterator[Parent]:
    """The machine's igb with this many virtual functions, and its link up."""
    (name,) = (entry.name for entry in NETWORK.iterdir() if (entry / "device/driver").resolve().name == "igb")
    ip("link", "set", name, "up")
    until(lambda: (NETWORK / name / "carrier").read_text().strip() == "1", "the NIC has no link")
    made = Parent(name)
    made.make(count)
    try:
        yield made
    finally:
        # A function whose pod just ended comes back some time later.
        until(lambda: len(made.interfaces()) in {0, count, len(made.functions())}, "a virtual function did not come back")
        made.make(0)


def node(folder: pathlib.Path, options: nic_options.NicOptions = OPTIONS, *, cdi: pathlib.Path | None = None) -> nic_attach.World:
    """The machine itself as a node, whose driver offers virtual functions whole."""
    world = nic_attach.World(netns.Namespace("none"), folder, options, cdi=cdi)
    world.namespace = None
    return world


def device_of(world: nic_attach.World, interface: str) -> str:
    """The device's name of a whole interface."""
    address = (NETWORK / interface / "device").resolve().name
    return f"pci-{address.replace(':', '-').replace('.', '-')}-whole"


def claim(device: str, parameters: records.Record | None = None, *, bandwidth: str = "50M") -> claims.Claim:
    """A claim of a whole virtual function, with parameters of its class."""
    shared = nic_attach.claim(1, parameters=parameters, source=claims.ConfigSource.CLASS, bandwidth=bandwidth)
    return of_device(shared, device)


def of_device(wanted: claims.Claim, device: str) -> claims.Claim:
    """The claim with another device."""
    return dataclasses.replace(wanted, results=tuple(dataclasses.replace(result, device=device) for result in wanted.results))


def function_and_share(world: nic_attach.World, nic: Parent, address: str) -> list[claims.Claim]:
    """Two claims: of a NIC's first function as ``fast0``, and of a share of the NIC as ``shared0`` with an address."""
    share = nic_attach.claim(2, bandwidth="50M", parameters={"interfaceName": "shared0", "addresses": [f"{address}/16"]})
    return [
        claim(device_of(world, nic.interfaces()[0]), {"interfaceName": "fast0"}),
        of_device(share, device_of(world, nic.name).removesuffix("-whole")),
    ]


@contextlib.contextmanager
def partner(address: str) -> Iterator[None]:
    """The machine's second NIC in a namespace of its own, with an address, as a partner on the wire."""
    (name,) = (
        entry.name
        for entry in NETWORK.iterdir()
        if (entry / "device/driver").exists() and (entry / "device/driver").resolve().name == "virtio_net"
    )
    with netns.namespace() as space:
        for words in (
            ("link", "set", name, "netns", space.name),
            ("-netns", space.name, "address", "add", f"{address}/16", "dev", name),
            ("-netns", space.name, "link", "set", name, "up"),
        ):
            ip(*words)
        yield
    until((NETWORK / name).exists, "the partner did not come back")


def attach(world: nic_attach.World, ref: claims.ClaimRef, pod: nic_attach.Pod, container: str = "c1") -> None:
    """Start a container that lists the claim, and again where the driver does not answer in time, as it may in an emulated machine."""

    def is_attached() -> bool:
        said = world.call(ref, pod, container)
        assert said.code == 0 or "in time" in said.stderr, said
        return said.code == 0

    nic_attach.until(is_attached, "the driver answers no call in time", seconds=5 * SETTLING_SECONDS)


def shaping() -> set[str]:
    """The queues, classes and filters of the machine, without counters."""
    said = [subprocess.run(["tc", kind, "show"], check=True, capture_output=True, text=True).stdout for kind in ("qdisc", "filter")]
    links = [link["ifname"] for link in ip("link", "show")]
    classes = [subprocess.run(["tc", "class", "show", "dev", name], check=True, capture_output=True, text=True).stdout for name in links]
    lines = {line for text in (*said, *classes) for line in text.splitlines()}
    # A fair queue lists a class for each flow that has sent something.
    return {*links, *(line for line in lines if not line.startswith("class fq_codel"))}


def settled(read: Any, wanted: object) -> Any:
    """Return what is read once it is as wanted, or after a while whatever it is."""
    deadline = time.monotonic() + SETTLING_SECONDS
    while (present := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return present
