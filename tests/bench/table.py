"""The lines of a benchmark's table, and the figures in them."""

import pathlib
import sys
import time
from collections.abc import Callable, Sequence

TITLE, VALUE = 52, 34


def timed(work: Callable[[], object]) -> float:
    """Milliseconds that the work took."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def at(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def line(title: str, value: str, ratio: float | None = None, aim: str = "", *, met: bool | None = None) -> None:
    """One line: what, how much, how many times the floor (or what the title names), and the aim with whether it was met."""
    times = "" if ratio is None else f"{ratio:6.2f}x"
    verdict = "" if met is None else " met" if met else " MISSED"
    sys.stdout.write(f"node: {title:{TITLE}} {value:{VALUE}} {times:>8}  {aim}{verdict}".rstrip() + "\n")
    sys.stdout.flush()


def spread(values: Sequence[float]) -> str:
    """Median and 99th percentile of milliseconds."""
    return f"p50 {at(values, 0.5):7.2f} ms  p99 {at(values, 0.99):7.2f} ms"


def load() -> str:
    """How busy the machine is; figures taken while others work on it say little."""
    return "load average " + " ".join(pathlib.Path("/proc/loadavg").read_text().split()[:3])
