"""Tests on real drivers run in the machine that ``make vm`` starts. ``docs/howto/test-on-real-drivers.md`` says how to add one."""

import os
import pathlib
import platform

import pytest

from vm import vfio_machine


def is_old() -> bool:
    """Whether the kernel is older than the NIC driver needs."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int(minor)) < (5, 14)


VFIO, OLD = "test_vfio_", "test_before_5_14"
NEEDS = {
    VFIO: (vfio_machine.has_iommu, "a machine with an IOMMU: --iommu"),
    OLD: (is_old, "an older kernel: --kernel 5.10"),
}
"""By the beginning of a file's name: whether this machine has what its tests need, and what that is."""
ON_OLD = (OLD, "test_machine", "test_power_cuts")


def pytest_configure() -> None:
    """Refuse to run elsewhere, because tests change the machine's network."""
    if "DRAKIT_VM" not in os.environ:
        raise pytest.UsageError("tests/vm runs in a machine of its own: make vm")


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    """Leave out the tests that need another machine than this."""
    name = collection_path.name
    if is_old() and name.startswith("test_") and not name.startswith(ON_OLD):
        return True
    return True if any(name.startswith(begin) and not has() for begin, (has, _) in NEEDS.items()) else None


def pytest_report_header() -> list[str]:
    lines = [f"not collected: {begin}*.py (need {what})" for begin, (has, what) in NEEDS.items() if not has()]
    return [*lines, f"collected: {', '.join(ON_OLD)} alone (the others need Linux 5.14)"] if is_old() else lines
