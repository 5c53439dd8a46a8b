"""Tests on real drivers run in the machine that ``make vm`` starts. ``docs/howto/test-on-real-drivers.md`` says how to add one."""

import os
import pathlib

import pytest

from vm import vfio_machine

VFIO = "test_vfio_"


def pytest_configure() -> None:
    """Refuse to run elsewhere, because tests change the machine's network."""
    if "DRAKIT_VM" not in os.environ:
        raise pytest.UsageError("tests/vm runs in a machine of its own: make vm")


def pytest_ignore_collect(collection_path: pathlib.Path) -> bool | None:
    """Leave out the tests of VFIO in a machine without an IOMMU."""
    return True if collection_path.name.startswith(VFIO) and not vfio_machine.has_iommu() else None


def pytest_report_header() -> str:
    return "" if vfio_machine.has_iommu() else f"not collected: {VFIO}*.py (need a machine with an IOMMU: --iommu)"
