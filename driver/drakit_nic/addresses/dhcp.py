"""Addresses from the network's DHCP server, by udhcpc (busybox): one exchange for each lease and each renewal.

The client runs on the NIC in the host's network namespace, never in a pod's, because a process there would keep the namespace of an ended pod. The
server distinguishes pods by a client identifier (option 61, RFC 2131), so also ipvlans, which all have the NIC's MAC address. Answers are broadcast,
because the kernel would give one for the pod's address to the pod. A server that has a lease of a client identifier renews it.
"""

import dataclasses
import hashlib
import ipaddress
import pathlib
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol

import drakit

SECONDS = 6.0
"""The longest wait for a server. A server may take three seconds to see whether an address is free."""
_TRIES, _PAUSE_SECONDS = 5, 1
_LOOK_SECONDS = 0.05
_SCRIPT = "dhcp-lease"
_SCRIPT_TEXT = """#!/bin/sh
# Print a lease of udhcpc, and change nothing.
[ "$1" = bound ] && echo "$ip/${mask:-32} $lease $serverid"
exit 0
"""
_PROGRAMS = (("udhcpc",), ("busybox", "udhcpc"))
_OPTIONAL_TYPE = "00"
"""The type of a client identifier that is no hardware address (RFC 2132, 9.14)."""
_IDENTIFIER_BYTES = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """A lease of a server: the address in CIDR form, for how many seconds, and the server's address."""

    address: str
    seconds: int
    server: str


class Client(Protocol):
    """A DHCP client of one exchange."""

    def request(self, nic: int, identifier: str, is_wanted: Callable[[], bool], *, address: str = "") -> Offer:
        """Return a lease from the network of a NIC, for at most ``SECONDS``. ``address`` is an earlier one, to request again.

        ``nic`` is the NIC's interface index, which stays when the NIC is renamed. ``identifier`` is the client identifier in
        hexadecimal digits. Raises HardwareError where no server answers, and CallerGoneError where ``is_wanted``
        becomes false before.
        """


def now() -> float:
    """Return seconds since the boot, with time asleep. A lease counts only within one boot, and nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def identifier_of(node: str, share_id: str, pod: str) -> str:
    """Return the client identifier of a pod's interface. A sandbox that is created again has the same one, so it gets the same address."""
    digest = hashlib.sha256(f"{node}\0{share_id}\0{pod}".encode()).digest()[:_IDENTIFIER_BYTES]
    return f"{_OPTIONAL_TYPE}{digest.hex()}"


class Udhcpc:
    """The client of busybox. ``folder`` is the driver's, for the script that prints the lease. ``run_inside`` runs work in the NIC's namespace."""

    def __init__(self, folder: pathlib.Path, run_inside: Callable[[Callable[[], Offer]], Offer]) -> None:
        self._folder, self._run_inside = folder, run_inside
        self._writing = threading.Lock()

    def request(self, nic: int, identifier: str, is_wanted: Callable[[], bool], *, address: str = "") -> Offer:
        options = (
            *("-f", "-q", "-n", "-B", "-C", "-o", "-O", "subnet"),
            *("-t", str(_TRIES), "-T", str(_PAUSE_SECONDS), "-x", f"0x3d:{identifier}", "-s", str(self._script())),
            *(("-r", address.partition("/")[0]) if address else ()),
        )
        program = _program()

        def run() -> Offer:
            name = _name_of(nic)
            return _run((*program, "-i", name, *options), name, is_wanted)

        return self._run_inside(run)

    def _script(self) -> pathlib.Path:
        """Return the script, which is written before its first use. Raises HardwareError."""
        path = self._folder / _SCRIPT
        try:
            # A client that another thread starts during a write inherits the open file for a moment, and Linux runs no file that is open for writing.
            with self._writing:
                if not path.exists() or path.read_text("ascii") != _SCRIPT_TEXT:
                    fresh = path.with_name(f"{_SCRIPT}.{secrets.token_hex(8)}")  # In two pods both drivers may have the PID 1.
                    fresh.write_text(_SCRIPT_TEXT, "ascii")
                    fresh.chmod(0o700)
                    fresh.replace(path)
        except OSError as error:
            raise drakit.HardwareError("DHCP", f"writing {path} failed: {error}") from error
        return path


def _program() -> tuple[str, ...]:
    for words in _PROGRAMS:
        path = shutil.which(words[0])
        if path is not None:
            return (path, *words[1:])
    fix = "install busybox or udhcpc where the driver runs (drakit's image has it), or use addresses or addressPools"
    raise drakit.HardwareError("DHCP", f"NicConfig.dhcp needs the program udhcpc; {fix}")


def _name_of(nic: int) -> str:
    """Return the present name of an interface of the calling thread's namespace. Raises HardwareError."""
    try:
        return socket.if_indextoname(nic)
    except OSError as error:
        reason = f"there is no interface with index {nic}: the NIC was replaced or pulled out since the claim was prepared"
        raise drakit.HardwareError("DHCP", f"{reason}; delete the pod and its claim") from error


def _run(words: tuple[str, ...], nic: str, is_wanted: Callable[[], bool]) -> Offer:
    """Run the client in the calling thread's namespace and return its lease. Raises HardwareError and CallerGoneError."""
    until = time.monotonic() + SECONDS
    try:
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as client:
            while client.poll() is None and time.monotonic() < until and is_wanted():
                time.sleep(_LOOK_SECONDS)
            client.kill()
            printed, messages = client.communicate()
    except OSError as error:
        raise drakit.HardwareError("DHCP", f"{words[0]} does not run: {error}") from error
    try:
        address, seconds, server = printed.split()
        return Offer(address=str(ipaddress.IPv4Interface(address)), seconds=int(seconds), server=str(ipaddress.IPv4Address(server)))
    except ValueError:
        if not is_wanted():
            raise drakit.CallerGoneError(f"nobody waits any longer for the DHCP lease on {nic}") from None
        last = (messages.strip().splitlines() or [f"exit status {client.returncode}"])[-1]
        fix = "check that the NIC's network has a DHCP server with a free address, or give the claim addresses instead of NicConfig.dhcp"
        raise drakit.HardwareError("DHCP", f"no lease on {nic} in {SECONDS:.0f} seconds ({last}); {fix}") from None
