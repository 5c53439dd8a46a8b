"""A kernel before Linux 5.14 has no cookies of network namespaces: no share is offered, and the reason is said.

The kernel is this machine's. A seccomp filter refuses the one socket option (SO_NETNS_COOKIE), with the error of an older kernel, and all of BPF, as
Linux 5.10 does where its RLIMIT_MEMLOCK is low. ``tests/vm/test_old_kernel.py`` runs on such a kernel.
"""

import ctypes
import errno
import os
import platform
import struct

import pytest

from drakit.core import advanced
from drakit_nic import checks, kernel_port
from fakes import netns

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
GETSOCKOPT, BPF, SO_NETNS_COOKIE = 55, 321, 71
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, THIRD_ARGUMENT = 0, 32
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
FILTER = (
    (LOAD, 0, 0, NUMBER),
    (JUMP_IF_EQUAL, 5, 0, BPF),
    (JUMP_IF_EQUAL, 0, 3, GETSOCKOPT),
    (LOAD, 0, 0, THIRD_ARGUMENT),
    (JUMP_IF_EQUAL, 0, 1, SO_NETNS_COOKIE),
    (RETURN, 0, 0, REFUSE | errno.ENOPROTOOPT),
    (RETURN, 0, 0, ALLOW),
    (RETURN, 0, 0, REFUSE | errno.EPERM),
)
"""struct sock_filter of linux/filter.h, on struct seccomp_data of linux/seccomp.h."""

pytestmark = [
    pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not()),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has the numbers of x86_64's getsockopt and bpf"),
]


def refuse_cookies_and_bpf() -> None:
    """Let this process see a kernel without the option, that lets it create no BPF map."""
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in FILTER))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(FILTER), ctypes.addressof(instructions)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0, os.strerror(ctypes.get_errno())


def test_no_share_can_be_enforced_and_doctor_names_the_version() -> None:
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            refuse_cookies_and_bpf()
            finding = checks.of_kernel(kernel_port.KernelPort().shaping)
            os.write(writer, f"{finding.verdict.value}\n{finding.message}\n{finding.fix}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.wait()
    verdict, message, fix = os.read(reader, 4096).decode().split("\n")
    os.close(reader)
    assert verdict == advanced.Verdict.FAILED.value
    assert "this kernel has no cookies of network namespaces, which came with Linux 5.14" in message
    assert fix.startswith("use Linux 5.14 or later")
