"""Commits a second of the journal beside a floor of the same run and disk: appending 4 KiB and calling fsync, one after the other.

Run it as ``python tests/bench/bench_journal.py [FOLDER]``; the folder decides the disk (default: the working directory).
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import sys
import tempfile
import time

from drakit.core import capacity, device, lifecycle, names
from drakit.core import claim as claims
from drakit.journal import journal

WRITES = 1000
CLAIMS = 1000
THREADS = (1, 4, 16)


def floor(folder: pathlib.Path) -> float:
    """Appends of 4 KiB with fsync, a second."""
    with (folder / "floor").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(WRITES):
            file.write(bytes(4096))
            os.fsync(file.fileno())
        return WRITES / (time.perf_counter() - start)


def moves(memory: journal.Journal, threads: int) -> float:
    """Moves (begin, complete, withdraw, forget of a claim each) a second, from so many threads."""
    grant = lifecycle.GrantEntry(
        request="gpu", pool="node-1", device=device.Device(name="gpu-0", capacity={"memory": capacity.Capacity.of("40Gi")})
    )

    def live(number: int) -> None:
        uid = names.ClaimUid(f"00000000-0000-4000-8000-{number:012d}")
        ref = claims.ClaimRef(uid=uid, namespace="bench", name=f"claim-{number}")
        memory.begin(lifecycle.Entry(claim=ref, state=lifecycle.State.ABSENT, grants=(grant,)))
        memory.complete(uid, [dataclasses.replace(grant, record={"uuid": "MIG-1"})], "boot")
        memory.begin_unprepare(uid)
        memory.finish_unprepare(uid)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(live, range(CLAIMS // 4)))
        return CLAIMS / (time.perf_counter() - start)


def main(folder: pathlib.Path) -> None:
    """Print the floor, then moves a second and their ratio to it for each number of threads."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        base = floor(pathlib.Path(scratch))
        sys.stdout.write(f"journal: floor, append 4 KiB and fsync   {base:9.0f}/s   1.00\n")
        with journal.Journal.open(pathlib.Path(scratch) / "data", driver="bench.example.com", boot_id="boot") as memory:
            for threads in THREADS:
                rate = moves(memory, threads)
                sys.stdout.write(f"journal: durable moves, {threads:2d} threads        {rate:9.0f}/s   {rate / base:.2f}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path())
