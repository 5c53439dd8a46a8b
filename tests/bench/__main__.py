"""``PYTHONPATH=tests python -m bench [NAME ...]``: run benchmarks one after the other, all of them by default."""

import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping

from bench import bench_allocator, bench_gpu, bench_journal, bench_nic, bench_nic_queues, bench_node, bench_simulation, bench_workload

BENCHES: Mapping[str, Callable[[pathlib.Path], None]] = {
    "journal": bench_journal.main,
    "node": bench_node.main,
    "allocator": bench_allocator.main,
    "nic": bench_nic.main,
    "nic_queues": bench_nic_queues.main,
    "gpu": bench_gpu.main,
    "workload": bench_workload.main,
    "simulation": bench_simulation.main,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, each in a folder of its own on the working directory's disk; the exit status."""
    unknown = sorted(set(names) - BENCHES.keys())
    if unknown:
        sys.stderr.write(f"bench: no benchmark {', '.join(unknown)}; there are {', '.join(BENCHES)}\n")
        return 2
    for name in names or BENCHES:
        sys.stdout.write(f"== {name}: {(BENCHES[name].__module__)}\n")
        with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd(), prefix=".bench-") as folder:
            BENCHES[name](pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
