"""What the publisher writes to API servers of Kubernetes 1.35, 1.36 and 1.37, with each feature gate on and off."""

import collections.abc
import io
import json
import pathlib
from typing import Any

import pytest

from drakit.core import capacity, device, inventory, node_resources
from drakit.core.slices import node_selection
from drakit.kube import client
from drakit.kube import slices as kube_slices
from drakit.node.publishing import publisher
from drakit.telemetry import logs
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import features, resources
from fakes import manual_clock, real_clock

DRIVER = "new.example.com"
NODE = "node-1"
GROUPS = "DRADeviceCompatibilityGroups"
TYPE = "DRAPartitionableDevicesType"
OPERATIONS = "DRAOptionalNodeOperations"
RESOURCES = "DRANodeAllocatableResources"
FRACTIONS = "DRAFractionalCapacityRange"
LISTS = "DRAListTypeAttributes"

Serve = collections.abc.Callable[..., "Published"]


class Published:
    """A server of a version, and a publisher of one inventory for it."""

    def __init__(self, server: apiserver.ApiServer, folder: pathlib.Path, *, node: str = NODE) -> None:
        self.server = server
        server.registry.create(resources.NODE, {"metadata": {"name": NODE}})
        server.write_kubeconfig(folder / "config")
        self._store = kube_slices.ApiSlices(client.connect(folder / "config"), driver=DRIVER, node=node, clock=real_clock.RealClock())
        reach = None if node else node_selection.AllNodes()
        target = publisher.Target(driver=DRIVER, node=node, pool="pool" if reach else node, reach=reach)
        self.publisher = publisher.Publisher(target, store=self._store, clock=manual_clock.ManualClock())
        self.log = io.StringIO()
        logs.setup(stream=self.log)

    def offer(self, offered: inventory.Inventory) -> list[Any]:
        """Publish, check that a second round writes nothing, and return the specs of the slices with devices."""
        self.publisher.offer(offered)
        self.publisher.reconcile()
        assert self.publisher.reconcile() == 0
        specs: list[Any] = [stored["spec"] for stored in self.server.registry.list(resources.SLICE).items]
        assert not [spec for spec in specs if spec["pool"]["name"].endswith("/probe")], "no probe slice is left"
        return [spec for spec in specs if "devices" in spec]

    @property
    def dropped(self) -> set[str]:
        """The features that the publisher logged as dropped, without mixins, which no server has."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        named = {feature for line in lines if line["event"] == "API server drops fields" for feature in line["features"]}
        return named - {"DRAResourceSliceMixins"}


@pytest.fixture
def serve(tmp_path: pathlib.Path) -> collections.abc.Iterator[Serve]:
    running: list[apiserver.ApiServer] = []

    def start(version: str, *on: str, off: str = "", node: str = NODE) -> Published:
        changes = dict.fromkeys(on, True) | ({off: False} if off else {})
        running.append(apiserver.ApiServer(registry.Registry(gates=features.FeatureGates.of(changes, version))))
        running[-1].start()
        return Published(running[-1], tmp_path, node=node)

    yield start
    for server in running:
        server.stop()


def partitions(*groups: str) -> inventory.Inventory:
    def half(name: str, groups: tuple[str, ...]) -> device.Device:
        taken = device.CounterConsumption(counter_set="chip", counters={"memory": 1}, compatibility_groups=groups)
        return device.Device(name=name, attributes={"profile": "half"}, consumes=(taken,))

    sets = (device.CounterSet(name="chip", counters={"memory": 2}),)
    return inventory.Inventory(devices=(half("left", groups), half("right", groups)), counter_sets=sets)


@pytest.mark.parametrize(
    "version, gates, written, dropped",
    [("1.37", (GROUPS,), ["virtual"], set()), ("1.37", (), None, {GROUPS}), ("1.36", (), None, {GROUPS})],
)
def test_compatibility_groups_go_to_servers_that_store_them(
    serve: Serve, version: str, gates: tuple[str, ...], written: list[str] | None, dropped: set[str]
) -> None:
    made = serve(version, *gates)
    (spec,) = made.offer(partitions("virtual"))
    assert [one["consumesCounters"][0].get("compatibilityGroups") for one in spec["devices"]] == [written, written]
    assert made.dropped == dropped


@pytest.mark.parametrize("name", ["profile", f"{DRIVER}/profile"])
@pytest.mark.parametrize("version, gates, is_written", [("1.37", (TYPE,), True), ("1.37", (), False), ("1.36", (), False)])
def test_slices_name_the_type_of_partitions_where_the_server_stores_it(
    serve: Serve, version: str, gates: tuple[str, ...], name: str, *, is_written: bool
) -> None:
    made = serve(version, *gates)
    halves = partitions()
    (spec,) = made.offer(inventory.Inventory(devices=halves.devices, counter_sets=halves.counter_sets, partition_type=name))
    assert spec.get("partitionTypeAttribute") == (f"{DRIVER}/profile" if is_written else None)
    assert made.dropped == (set() if is_written else {TYPE})


@pytest.mark.parametrize("version, gates, is_written", [("1.37", (OPERATIONS,), True), ("1.37", (), False), ("1.36", (), False)])
def test_a_pool_without_a_node_part_says_so_where_the_server_stores_it(
    serve: Serve, version: str, gates: tuple[str, ...], *, is_written: bool
) -> None:
    made = serve(version, *gates, node="")
    (spec,) = made.offer(inventory.Inventory(devices=(device.Device(name="licence"),), skip_node_operations=True))
    assert spec.get("skipNodeOperations") == (["*"] if is_written else None)
    assert made.dropped == (set() if is_written else {OPERATIONS})


CORES = node_resources.NodeResource(capacity="cores", per_unit=2)
ROOM = node_resources.NodeResource(per_pod="1Gi", per_container="16Mi")


@pytest.mark.parametrize(
    "version, gates, field, written, dropped",
    [
        (
            "1.37",
            (RESOURCES,),
            "nodeAllocatableResources",
            {
                "cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}},
                "memory": {"overhead": {"perPod": "1Gi", "perContainer": "16Mi"}},
            },
            set(),
        ),
        (
            "1.36",
            (RESOURCES,),
            "nodeAllocatableResourceMappings",
            {"cpu": {"allocationMultiplier": "2", "capacityKey": "cores"}, "memory": {"allocationMultiplier": "1Gi"}},
            {"nodeAllocatableResources"},
        ),
        ("1.37", (), "nodeAllocatableResources", None, {RESOURCES}),
        ("1.36", (), "nodeAllocatableResourceMappings", None, {RESOURCES, "nodeAllocatableResources"}),
        ("1.35", (), "nodeAllocatableResources", None, {RESOURCES}),
    ],
)
def test_node_resources_are_written_in_the_form_that_the_server_has(
    serve: Serve, version: str, gates: tuple[str, ...], field: str, written: object, dropped: set[str]
) -> None:
    made = serve(version, *gates)
    (spec,) = made.offer(
        inventory.Inventory.of([device.Device(name="a", capacity={"cores": 8}, node_resources={"cpu": CORES, "memory": ROOM})])
    )
    fields = [name for name in spec["devices"][0] if name.startswith("nodeAllocatable")]
    assert fields == ([] if written is None else [field])
    assert spec["devices"][0].get(field) == written
    assert made.dropped == dropped


def shared(**policy: Any) -> inventory.Inventory:
    amount = capacity.Capacity(value=policy.pop("value", 1), policy=capacity.RequestPolicy(**policy))
    return inventory.Inventory.of([device.Device(name="a", allow_multiple_allocations=True, capacity={"cores": amount})])


EVEN = {"default": "100m", "valid_range": capacity.ValidRange(min="100m", step="100m")}
ODD = {"value": 3, "default": "1500m", "valid_range": capacity.ValidRange(min=0, max=3, step="1500m")}
LISTED = {"default": "250m", "valid_values": ("250m", "500m", "1")}


@pytest.mark.parametrize(
    "policy, on_1_36",
    [
        (EVEN, {"default": "100m", "validRange": {"min": "100m", "step": "100m"}}),
        (ODD, {"default": "1500m", "validValues": ["1500m"]}),
        (LISTED, {"default": "250m", "validValues": ["250m"]}),
    ],
    ids=["rounded to whole units", "refused by 1.36", "equal in whole units"],
)
@pytest.mark.parametrize("version, off", [("1.36", ""), ("1.37", FRACTIONS), ("1.37", "")])
def test_fractional_policies_go_to_servers_that_count_in_thousandths(
    serve: Serve, policy: dict[str, Any], on_1_36: object, version: str, off: str
) -> None:
    made = serve(version, off=off)
    is_exact = (version, off) == ("1.37", "")
    (spec,) = made.offer(shared(**policy))
    written = spec["devices"][0]["capacity"]["cores"]["requestPolicy"]
    if not is_exact:
        assert written == on_1_36
    else:
        assert list(written.get("validValues", ())) == list(policy.get("valid_values", ()))
        assert written.get("validRange", {}).get("step") == (str(policy["valid_range"].step) if "valid_range" in policy else None)
    assert made.dropped == (set() if is_exact else {FRACTIONS})


@pytest.mark.parametrize("version, gates", [("1.37", (LISTS,)), ("1.37", ()), ("1.35", ())])
def test_without_lists_a_device_near_several_numa_nodes_names_its_own(serve: Serve, version: str, gates: tuple[str, ...]) -> None:
    made = serve(version, *gates)
    near = device.Device(name="a", attributes={"resource.kubernetes.io/numaNode": (2, 3), "peers": (0, 1)})
    (spec,) = made.offer(inventory.Inventory.of([near]))
    expected = {"resource.kubernetes.io/numaNode": {"ints": [2, 3]}, "peers": {"ints": [0, 1]}}
    assert spec["devices"][0]["attributes"] == (expected if gates else {"resource.kubernetes.io/numaNode": {"int": 2}})
    assert made.dropped == (set() if gates else {LISTS})
