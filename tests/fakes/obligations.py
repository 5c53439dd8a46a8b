"""One obligation of the conformance suite, checked alone as ``check_driver`` checks it after the others."""

import pathlib
from collections.abc import Callable
from typing import Any

import drakit
from drakit import testing
from drakit.testing import bench, checking


def judged(
    name: str,
    make: Callable[[], drakit.Driver[Any]],
    hardware: Callable[[], object],
    *groups: tuple[str, ...],
    exclusive: tuple[str, ...] = (),
    earlier: tuple[pathlib.Path, ...] = (),
    every: int = 1,
) -> testing.Check:
    """Check the obligation with claims for these groups of devices."""
    made = bench.Bench(
        make=make,
        hardware=hardware,
        has_hardware=True,
        tried=groups,
        parameters=(),
        refused=(),
        consumed={},
        exclusive=exclusive,
        earlier=earlier,
        death=testing.Death.RAISE,
        every=every,
    )
    return checking.judged(name, made)
