"""How many pods one claim bears: pods that share a claim for a workload (KEP-5194), beside pods that the claim lists, in the local cluster.

``PYTHONPATH=tests python -m bench.bench_workload [PODS ...]``. The pods are scheduled and their containers pretended; the claim is
prepared once. Each line is one cluster of its own.
"""

import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from bench import table
from drakit_cluster.client.pod_claims import MAX_RESERVATIONS
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

COUNTS = (256, 1000, 4000)
JOB: Object = {"apiGroup": "kubeflow.org", "resource": "trainjobs", "name": "train", "uid": "0d4f0b1e-7b1c-4d52-8c6a-0a3f1f1c9d11"}


@contextlib.contextmanager
def _quick_cluster() -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk", dir="/tmp"))
    running = QuickCluster(folder)
    try:
        running.start()
        running.plugin()
        running.offer("gpu-0")
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _run(count: int, *, listed: bool) -> None:
    """Let ``count`` pods run with one claim, then say what that took."""
    with _quick_cluster() as cluster:
        claim = objects.claim("c")
        if not listed:
            json_types.child(claim, "spec")["reservedFor"] = JOB
        cluster.create(CLAIM, claim)
        writes = cluster.api.watch(CLAIM, since=cluster.api.list(CLAIM).resource_version)
        began = time.perf_counter()
        for number in range(count):
            cluster.create(POD, objects.pod(f"p{number}", claim="c"))
        running: set[str] = set()
        with contextlib.closing(cluster.api.watch(POD, since="")) as pods:
            for event in pods:
                if json_types.text(event.object, "status", "phase") == "Running":
                    running.add(json_types.text(event.object, "metadata", "name"))
                if len(running) == count:
                    break
        seconds = time.perf_counter() - began
        size = len(json.dumps(cluster.claim("c"), separators=(",", ":")))
        last = cluster.claim("c")["metadata"]
        changes = 0
        for event in writes:
            changes += 1
            if event.object["metadata"] == last:
                break
        writes.close()
        kind = "listed in the claim" if listed else "of a workload"
        shown = f"{count / seconds:7.0f}/s {1000 * seconds / count:8.2f} ms a pod"
        table.line(
            f"{count} pods {kind} share a claim", shown, aim=f"claim of {size} bytes, written {changes} times"
        )  # Its finalizer is one write.


def main(_folder: pathlib.Path, counts: Sequence[int] = COUNTS) -> None:
    """Print the table."""
    table.line("machine", table.load())
    _run(min(MAX_RESERVATIONS, max(counts)), listed=True)
    for count in counts:
        _run(count, listed=False)


if __name__ == "__main__":
    main(pathlib.Path.cwd(), [int(argument) for argument in sys.argv[1:]] or COUNTS)
