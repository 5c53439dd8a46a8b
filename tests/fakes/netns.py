"""Network namespaces and pairs of interfaces on the real kernel, made for one test and always removed.

A NIC is one end of a veth pair; its other end is the wire. Everything is made by the ``ip`` and ``tc`` tools, so that tests do not check the
driver's netlink code with itself.
"""

import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterator

from fakes import waits

_REPORT_SECONDS = 1.2
_NUMBERS = itertools.count()


WORKER = f"{zlib.crc32(''.join(os.environ.get(f'PYTEST_XDIST_{part}', '') for part in ('TESTRUNUID', 'WORKER')).encode()):08x}"
"""Eight digits that tests at the same time do not share, and processes of one test do: drivers look for what is theirs in every namespace."""
HAS_IPV6 = pathlib.Path("/proc/net/if_inet6").exists()


@functools.cache
def has_qdisc(kind: str) -> bool:
    """Whether this process may make a queueing discipline of that kind: tried in a namespace that is gone at once."""
    if shutil.which("unshare") is None or shutil.which("tc") is None:
        return False
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", kind]
    return subprocess.run(command, capture_output=True, check=False, timeout=waits.SECONDS).returncode == 0


class Namespace:
    """A named network namespace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/run/netns/{name}"

    def ip(self, *words: str) -> str:
        """Run ``ip`` in the namespace; what it printed."""
        return _run("ip", "-n", self.name, *words)

    def ip_batch(self, *commands: tuple[str, ...]) -> None:
        """Run commands of ``ip`` in the namespace, one after the other, by one process."""
        quoted = (" ".join(f'"{word}"' if " " in word else word for word in words) for words in commands)
        _run("ip", "-n", self.name, "-batch", "-", given="".join(f"{line}\n" for line in quoted))

    def run(self, *words: str, timeout: float = waits.SECONDS) -> str:
        """Run a program in the namespace; what it printed."""
        return _run("ip", "netns", "exec", self.name, *words, timeout=timeout)

    def make_nic(self, name: str, *, mac: str, mtu: int = 1500, up: bool = True, queues: int = 1) -> None:
        """A NIC with carrier, its wire in the same namespace under the name ``<name>-wire``."""
        wire = f"{name[:10]}-wire"
        several = ("numtxqueues", str(queues), "numrxqueues", str(queues)) if queues > 1 else ()
        commands = [("link", "add", name, "address", mac, "mtu", str(mtu), *several, "type", "veth", "peer", "name", wire)]
        commands += [("link", "set", end, "up") for end in (name, wire) if up]
        self.ip_batch(*commands)
        deadline = time.monotonic() + waits.SECONDS
        while up and not self._have_carrier(name, wire):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} and its wire did not find each other")
            time.sleep(0.01)

    def _have_carrier(self, *names: str) -> bool:
        links = self.links()
        return all(links[name]["operstate"] == "UP" for name in names)

    def links(self) -> dict[str, dict[str, object]]:
        """What ``ip -j -d link`` says, by interface name."""
        return {str(link["ifname"]): link for link in json.loads(self.ip("-j", "-d", "link"))}

    def state(self) -> dict[str, object]:
        """Links, IPv4 addresses and routes, qdiscs and filters: what a driver could change and what does not change by itself."""
        links = self.links()
        filters = "".join(f"filter show dev {link}\n" for link in links)
        return {
            "links": links,
            "addresses": json.loads(self.ip("-4", "-j", "address")),
            "routes": self.ip("-4", "route", "show", "table", "all"),
            "qdiscs": json.loads(_run("tc", "-n", self.name, "-j", "qdisc")),
            "filters": _run("tc", "-n", self.name, "-batch", "-", given=filters),
        }

    def settled_state(self) -> dict[str, object]:
        """The state once it is the same for longer than a second: the kernel reports a change of carrier up to a second later."""
        deadline, since, state = time.monotonic() + waits.SECONDS, time.monotonic(), self.state()
        while time.monotonic() < since + _REPORT_SECONDS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the links of {self.name} change all the time")
            time.sleep(0.1)
            former, state = state, self.state()
            since = since if state == former else time.monotonic()
        return state


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """A fresh namespace, with nothing but its own lo; removed with all in it."""
    made = Namespace(f"drakit-{os.getpid()}-{next(_NUMBERS)}")
    _run("ip", "netns", "add", made.name)
    try:
        yield made
    finally:
        _run("ip", "netns", "delete", made.name)


@functools.cache
def why_not() -> str:
    """Why namespaces cannot be made here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} (iproute2) is not installed"
    try:
        with namespace() as trial:
            trial.make_nic("trial", mac="02:00:00:00:00:01")
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    return ""


def _run(*words: str, timeout: float = waits.SECONDS, given: str = "") -> str:
    return subprocess.run(words, input=given, check=True, capture_output=True, text=True, timeout=timeout).stdout
