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


def main(folder: pathlib.Path, size: bench_calls.Size = FULL) -> None:
    """Measure in a folder below ``folder``, whose disk it is about."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        # Relative, because the path of a socket may have 107 bytes.
        report(pathlib.Path(os.path.relpath(scratch)), size)


if __name__ == "__main__":
    main(pathlib.Path(), QUICK if "--quick" in sys.argv[1:] else FULL)
