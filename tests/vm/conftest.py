"""Tests on real drivers run in the machine that ``make vm`` starts. ``docs/howto/test-on-real-drivers.md`` says how to add one."""

import os

import pytest


def pytest_configure() -> None:
    """Refuse to run elsewhere, because tests change the machine's network."""
    if "DRAKIT_VM" not in os.environ:
        raise pytest.UsageError("tests/vm runs in a machine of its own: make vm")
