"""pyroute2's requests on a socket of ours. Only this module imports pyroute2 (ADR 72).

pyroute2 would open a namespace by fork, and a new socket for each thread, in the namespace of that thread. So it gets a socket that exists already
(``namespaces``), and is used in one thread. It is imported with the first request, because that takes 150 ms and mock machines do not need it.
"""

import errno
import os
import socket
import struct
import types
from collections.abc import Mapping

import drakit


class IPRoute:
    """pyroute2 on a copy of a netlink socket, until ``close``. It has an event loop of its own, so the thread must not run one."""

    def __init__(self, sock: socket.socket) -> None:
        self._library = _library()
        self._socket = sock.dup()
        try:
            self._route = self._library.IPRoute(use_socket=self._socket)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._route.close()
        self._socket.close()

    def request(self, table: str, command: str, fields: Mapping[str, object]) -> None:
        """Send a request and wait for its acknowledgement. Raises OSError, with the kernel's own message where it sends one."""
        try:
            getattr(self._route, table)(command, **fields)
        except self._library.NetlinkError as error:
            reason = os.strerror(error.code)
            message = str(error.args[1])
            raise OSError(error.code, reason if message == reason else f"{reason}: {message}") from error
        except self._library.NetlinkDecodeError as error:
            raise OSError(errno.EBADMSG, f"the kernel's answer cannot be read: {error.exception}") from error
        except (struct.error, ValueError) as error:
            raise OSError(errno.EINVAL, f"{table} {command} cannot be encoded: {error}") from error


def _library() -> types.ModuleType:
    try:
        import pyroute2  # noqa: PLC0415 - slow to load, and not needed on mock machines
    except ModuleNotFoundError as error:
        raise drakit.HardwareError("import pyroute2", "is not installed; run: pip install pyroute2") from error
    return pyroute2
