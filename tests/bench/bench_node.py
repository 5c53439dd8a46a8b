"""A whole node measured: calls of the kubelet, start, memory, idleness, publishing; one table, each line beside a floor of the same run.

``PYTHONPATH=tests python -m bench.bench_node [--quick]``; quick is for seeing that it runs, its figures say little.
"""

import os
import pathlib
import sys
import tempfile

from bench import bench_calls, bench_process, bench_publisher, table

FULL = bench_calls.Size(rounds=200, live=(0, 100, 1000), repeats=5)
QUICK = bench_calls.Size(rounds=3, live=(0, 2), repeats=1)


def report(folder: pathlib.Path, size: bench_calls.Size) -> None:
    """Print the table."""
    table.line("machine", f"{os.cpu_count()} cores, {table.load()}")
    base = bench_calls.report(folder, size)
    bench_publisher.report(folder, base, size.repeats)
    quick = size is QUICK
    bench_process.report(folder, repeats=size.repeats, idle_seconds=0.1 if quick else 20.0)
    table.line("machine", table.load())


def main(folder: pathlib.Path) -> None:
    """Measure in an empty folder, whose disk it is about and whose path has to be short: that of a socket may have 107 bytes."""
    report(folder, FULL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd(), prefix=".bench-") as scratch:
        report(pathlib.Path(scratch), QUICK if "--quick" in sys.argv[1:] else FULL)
