"""A kernel before Linux 5.14 has no cookies of network namespaces."""

import errno
import socket

import pytest

from drakit_nic.netlink import rtnetlink


class OldSocket(socket.socket):
    """A socket of a kernel without SO_NETNS_COOKIE."""

    def getsockopt(self, *_: int) -> bytes:  # type: ignore[override] # only the form with a length is called
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")


def test_the_error_names_the_version_that_is_needed() -> None:
    with OldSocket() as sock, pytest.raises(OSError, match=r"no cookies of network namespaces, which came with Linux 5\.14"):
        rtnetlink.cookie_of(sock)
