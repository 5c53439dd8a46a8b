"""The machine's RDMA subsystem: its mode, its devices, and the NICs that they are on.

``loaded`` gives NICs RDMA devices of the module in ``rdma_device``, which move between namespaces as those of hardware do. Those of rxe cannot be
moved in Debian's kernels, and send only from the host's namespace.
"""

import contextlib
import json
import pathlib
import subprocess
import time
from collections.abc import Iterator, Sequence

from fakes import waits

MODULE = pathlib.Path("/opt/rdma_device/drakit_rdma.ko")
_NETWORK = pathlib.Path("/sys/class/net")


def run(*words: str, timeout: float = waits.SECONDS) -> str:
    """Run a program; what it printed."""
    ran = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    assert ran.returncode == 0, f"{' '.join(words)}: {ran.stderr}{ran.stdout}"
    return ran.stdout


def can_load() -> bool:
    """Whether the module was built for this kernel."""
    info = subprocess.run(["modinfo", "-F", "vermagic", str(MODULE)], capture_output=True, text=True, check=False)
    return info.stdout.split(" ")[0] == run("uname", "-r").strip()


def interfaces_of(driver: str) -> list[str]:
    """The interfaces of a kernel driver, by name."""
    return sorted(path.name for path in _NETWORK.iterdir() if (path / "device/driver").resolve().name == driver)


def names(namespace: str = "") -> list[str]:
    """The RDMA devices of a namespace, the host's unless named."""
    inside = ("ip", "netns", "exec", namespace) if namespace else ()
    return sorted(device["ifname"] for device in json.loads(run(*inside, "rdma", "-j", "dev") or "[]"))


@contextlib.contextmanager
def mode(name: str) -> Iterator[None]:
    """The subsystem in a mode, ``exclusive`` or ``shared``. The kernel ends namespaces late, and changes the mode only when none is left."""
    _set_mode(name)
    try:
        yield
    finally:
        _set_mode("shared")


def _set_mode(name: str) -> None:
    deadline = time.monotonic() + waits.SECONDS
    while subprocess.run(["rdma", "system", "set", "netns", name], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, f"RDMA cannot be in {name} mode: a network namespace is left"
        time.sleep(0.2)


@contextlib.contextmanager
def loaded(interfaces: Sequence[str]) -> Iterator[list[str]]:
    """RDMA devices on these interfaces, whose names are yielded in the same order."""
    for module in ("ib_uverbs", "ib_umad", "rdma_ucm"):
        run("modprobe", module)
    before = names()
    run("insmod", str(MODULE), f"interfaces={','.join(interfaces)}")
    try:
        run("udevadm", "settle")  # udev renames them.
        ports = json.loads(run("rdma", "-j", "link"))
        by_interface = {port["netdev"]: port["ifname"] for port in ports if "netdev" in port and port["ifname"] not in before}
        yield [by_interface[interface] for interface in interfaces]
    finally:
        run("rmmod", "drakit_rdma")
