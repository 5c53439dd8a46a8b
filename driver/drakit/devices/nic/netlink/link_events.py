"""What others do to links and queueing, as the kernel tells every listener (RTNLGRP_LINK, RTNLGRP_TC).

Our own requests are told too, so whoever looks after an event drains what the look itself caused. Messages are not read, only noticed: what is true
is found by looking. Once narrowed, the kernel leaves out what does not matter: on a busy node nearly all changes are those of other pods' veths.
"""

import contextlib
import logging
import os
import re
import select
import socket

from drakit.devices.nic import port
from drakit.devices.nic.netlink import calls, event_filter, rtnetlink
from drakit.devices.nic.shaping import ifb_links

_GROUPS = 1 << 0 | 1 << 3
_log = logging.getLogger(__name__)
_WILD = re.compile(r"[*?\[]")


class KernelWatch:
    """Listens in a namespace, given as to ``rtnetlink.Socket.open``; raises OSError."""

    def __init__(self, namespace: str | int | None = None) -> None:
        self._socket = rtnetlink.listen(_GROUPS, namespace)
        self._socket.setblocking(False)
        self._namespace, self._filter, self._is_refused = namespace, b"", False
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def narrow(self, interest: port.Interest) -> bool:
        with calls.failing_as("RTM_GETLINK"), rtnetlink.Socket.open(self._namespace) as route:
            sharing = {ifindex for nic, link in ifb_links.ours(route).items() for ifindex in (nic, link.ifindex)}
        program = event_filter.program(interest.ifindexes | sharing, {ifb_links.PREFIX, *map(_beginning, interest.globs)})
        if program == self._filter:
            return False
        was_filtered, self._filter = bool(self._filter), b""
        try:
            event_filter.attach(self._socket, program)
            self._filter = program
        except OSError as error:
            event_filter.detach(self._socket)
            if not self._is_refused:
                _log.warning("event filter refused", extra={"error": str(error)})
            self._is_refused = True
        return was_filtered

    def wait(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._socket.fileno(), self._woken], [], [], seconds)
        return bool(ready)

    def drain(self) -> None:
        self._read_all(self._socket)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 1 << 12)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # As many calls to wake are waiting as a pipe can hold.
            os.write(self._waker, b"!")

    def close(self) -> None:
        self._socket.close()
        os.close(self._woken)
        os.close(self._waker)

    @staticmethod
    def _read_all(sock: socket.socket) -> None:
        while True:
            try:
                sock.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: more happened than the socket could hold, which is something that happened.
                continue


def _beginning(glob: str) -> str:
    """How every name that fits a glob starts; nothing where it is compared with something else than the name."""
    return "" if ":" in glob else _WILD.split(glob, maxsplit=1)[0]
