"""Tests on real drivers run in the machine that ``make vm`` starts. ``docs/howto/test-on-real-drivers.md`` says how to add one."""

import os
import pathlib
import platform

import pytest

from vm import selinux, vfio_machine

FIRST_KERNEL = (5, 14)
"""The first Linux on which the NIC driver offers interfaces."""
VFIO, SELINUX, OLD_KERNEL = "test_vfio_", "test_selinux_", "test_old_kernel"


def pytest_configure() -> None:
    """Refuse to run elsewhere, because tests change the machine's network, and where the kernel did not give what the machine was started for."""
    if "DRAKIT_VM" not in os.environ:
        raise pytest.UsageError("tests/vm runs in a machine of its own: make vm")
    if "security=selinux" in pathlib.Path("/proc/cmdline").read_text().split() and not selinux.is_on():
        raise pytest.UsageError("this machine was started with SELinux, which is not on; the journal says why")


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    """Leave out tests that need another machine: with an IOMMU, with SELinux, or with a kernel on which NICs are offered."""
    name = collection_path.name
    if not name.startswith("test_"):
        return None
    kind = next((kind for kind in (VFIO, SELINUX, OLD_KERNEL) if name.startswith(kind)), "")
    return True if kind not in _kinds() else None


def pytest_report_header() -> str:
    return f"collected in this machine: {', '.join(f'{kind}*' if kind else 'the others' for kind in _kinds())}"


def _kinds() -> tuple[str, ...]:
    """Return how the names of the tests begin that say something about this machine; empty for all others."""
    major, minor = platform.release().split(".")[:2]
    if (int(major), int(minor)) < FIRST_KERNEL:
        return (OLD_KERNEL,)
    if selinux.is_on():
        return (SELINUX,)
    return ("", VFIO) if vfio_machine.has_iommu() else ("",)
