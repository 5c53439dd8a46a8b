"""The real node driver, in this process, on a node of a local cluster: real sockets, real HTTPS, hardware in memory."""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from drakit.core import driver as drivers
from drakit.kube import claims, client, slices
from drakit.node import engine, local_node, node, timing
from drakit_cluster.kubelet import Timing
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS
from fakes import author
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QUICK, QuickCluster

NAME = author.FakeDriver.name
CHIP, PIPE = "chip", "pipe"
TIMING = dataclasses.replace(QUICK, health_retry=0.1)


class Driver(author.FakeDriver):
    """The fake driver; for admins it changes nothing."""

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        return drivers.Prepared() if grant.admin_access else super().prepare(grant)

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        if not grant.admin_access:
            super().unprepare(grant)


class RunningNode:
    """One process of the driver. Several of one cluster share hardware, journal and CDI folder, as those of a rolling update do."""

    def __init__(
        self,
        cluster: QuickCluster,
        driver: Driver,
        *,
        instance: str = "",
        grace: float = 30.0,
        boot_id: str = "boot-1",
        node_name: str = objects.NODE,
    ) -> None:
        self.quick_cluster = cluster
        self.driver = driver
        folder = cluster.cluster.node(node_name).folder
        self.home = folder.plugins / NAME
        self.client = client.connect(folder.kubeconfig)
        ticking = timing.SystemClock()
        spec = local_node.DriverSpec(
            driver_name=NAME, build=lambda _: driver, identity=engine.NodeIdentity(pool=node_name, boot_id=boot_id)
        )
        outside = node.NodeDependencies(
            claim_source=claims.ApiClaims(self.client),
            slice_store=slices.ApiSlices(self.client, driver=NAME, node=node_name, clock=ticking),
            registry=folder.registry,
            clock=ticking,
            rescan_seconds=0.2,
            instance=instance,
            registration_grace=grace,
        )
        self.node = node.Node(spec, local_node.Folders(home=self.home, cdi=folder.cdi), outside, node_name=node_name)

    def start(self, *, wait: bool = True) -> "RunningNode":
        """Start; wait until devices are published and the kubelet can call."""
        self.node.start()
        if wait:
            self.quick_cluster.until(self.offers_all, "devices")
            self.quick_cluster.until(lambda: self.node.registrar.wait_registered(0), "registration")
            kubelet = self.quick_cluster.cluster.node(objects.NODE).kubelet
            self.quick_cluster.until(lambda: kubelet.plugins.is_usable(NAME), "the driver's connection")
        return self

    def stop(self) -> None:
        self.node.stop()
        self.client.close()

    def offers_all(self) -> bool:
        """Whether every device of the hardware is in slices."""
        return self.offered() == {device.name for device in self.driver.discover().devices}

    def offered(self) -> set[str]:
        """Devices in slices, but for those of the pool in which the publisher asks what the server stores."""
        found = [device for one in offers(self.quick_cluster) for device in json_types.objects(one, "spec", "devices")]
        return {json_types.text(device, "name") for device in found}


def offers(cluster: QuickCluster) -> list[Object]:
    """The slices that offer something: those of the pool in which the publisher asks what the server stores come and go."""
    return [one for one in cluster.slices() if not json_types.text(one, "spec", "pool", "name").endswith("/probe")]


class NodeOnCluster:
    """A cluster of one node with classes for the fake driver's devices. ``serve`` starts a process of the driver; all are stopped at the end."""

    def __init__(self, timing: Timing) -> None:
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
        self.quick_cluster = QuickCluster(self._folder, timing=timing)
        self.hardware = author.Hardware()
        self.driver = Driver(self.hardware)
        self.served: list[RunningNode] = []

    def begin(self) -> None:
        self.quick_cluster.start()
        for kind, wanted in ((CHIP, "whole"), (PIPE, "pipe")):
            expression = f"device.driver == '{NAME}' && device.attributes['{NAME}'].kind == '{wanted}'"
            self.quick_cluster.create(CLASS, {"metadata": {"name": kind}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})

    def end(self) -> None:
        for one in self.served:
            one.stop()
        self.quick_cluster.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def serve(
        self,
        *,
        wait: bool = True,
        driver: Driver | None = None,
        instance: str = "",
        grace: float = 30.0,
        boot_id: str = "boot-1",
    ) -> RunningNode:
        """Start a process of the driver on the node."""
        made = RunningNode(self.quick_cluster, driver or self.driver, instance=instance, grace=grace, boot_id=boot_id)
        self.served.append(made)
        return made.start(wait=wait)

    def claim(self, name: str, *requests: Object) -> None:
        """A claim of one chip, unless requests say otherwise."""
        self.quick_cluster.create(CLAIM, objects.claim(name, *(requests or (chip(),))))

    def run(self, name: str, *requests: Object) -> Object:
        """A claim, and a pod of the same name that uses it, until that runs."""
        self.claim(name, *requests)
        return self.quick_cluster.run(objects.pod(name, claim=name))

    def made(self) -> list[str]:
        """What hardware exists."""
        return sorted(self.hardware.made)

    def env(self, pod: str) -> dict[str, str]:
        """The variables that devices gave to the pod's container."""
        return {name: value for name, value in self.quick_cluster.view(pod).env.items() if name.startswith("FAKE_")}


def chip(name: str = "gpu", **fields: Json) -> Object:
    return {"name": name, "exactly": {"deviceClassName": CHIP, **fields}}


def pipe(name: str = "pipe", amount: str = "1G") -> Object:
    return {"name": name, "exactly": {"deviceClassName": PIPE, "capacity": {"requests": {"bandwidth": amount}}}}


@contextlib.contextmanager
def running(timing: Timing = TIMING) -> Iterator[NodeOnCluster]:
    made = NodeOnCluster(timing)
    try:
        made.begin()
        yield made
    finally:
        made.end()
