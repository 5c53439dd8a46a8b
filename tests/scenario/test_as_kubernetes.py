"""The local cluster repeats the known errors of Kubernetes 1.36 where it is asked to."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.cluster_node import Components
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from fakes.allocation_objects import device, partitioned, strings
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster


@contextlib.contextmanager
def _quick_cluster(errors: KnownErrors) -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, components=Components(known_errors=errors))
    try:
        running.start()
        running.plugin()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("errors", [known_errors.NONE, known_errors.KUBERNETES_1_36], ids=["right", "1.36"])
def test_a_claim_for_two_partitions_of_one_gpu_waits_only_where_errors_are_repeated(errors: KnownErrors) -> None:
    places = [(gpu, number) for gpu in (0, 1) for number in (0, 1)]
    partitions = [
        device(f"gpu-{gpu}-{at}", draws={f"gpu-{gpu}.memory": "1"}, attributes=strings(parent=f"gpu-{gpu}")) for gpu, at in places
    ]
    match: Object = {"matchAttribute": f"{DRIVER}/parent"}
    with _quick_cluster(errors) as cluster:
        for one in partitioned(partitions, {"gpu-0.memory": "2", "gpu-1.memory": "2"}, driver=DRIVER, pool="node-1"):
            cluster.api.create(SLICE, one)
        cluster.create(CLAIM, objects.claim("small"))
        cluster.run(objects.pod("first", claim="small"))
        cluster.create(CLAIM, objects.claim("pair", objects.request("a"), objects.request("b"), constraints=[match]))
        cluster.create(POD, objects.pod("second", claim="pair"))
        if not errors:
            cluster.phase("second", "Running")
            assert cluster.devices("pair") == ["gpu-1-0", "gpu-1-1"]
            return
        cluster.until(lambda: cluster.scheduling_message("second"), "the refusal")
        assert "Kubernetes 1.36 does not find it: it does not release the counters" in cluster.scheduling_message("second")
