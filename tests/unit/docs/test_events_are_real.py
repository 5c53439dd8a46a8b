"""The events, statuses and taints that the page shows are those of a driver on mock hardware, or what the code makes of them."""

import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from drakit import machines, testing
from drakit.inputs import documents
from drakit.kube import status
from drakit.node import held_devices
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_gpu.health import faults
from drakit_gpu.sharing import usage_warnings
from drakit_nic.addresses import dhcp_renewal
from drakit_nic.attach import collector
from fakes import driver_process, forked_cli, waits
from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "reference" / "events.md"
NICS = PAGE.with_name("devices-nic.md")
CHANGING = frozenset({"shareID", "interfaceName", "hardwareAddress", "lastTransitionTime"})
FAULT = markdown.ROOT / "tests" / "e2e" / "gpu_fault.py"
GPU, NIC, NODE = "gpu.drakit.dev", "nic.drakit.dev", "node-1"
UNLINKED = '- {name: eth3, mac: "02:d9:a1:00:00:03", mtu: 9000, pciBusID: "0000:4c:00.0", driver: mlx5_core, carrier: false}\n'
SETTINGS = ("report.conditions=always", "nic.carrier_loss=taint", "nic.rules=[{match: eth3, speed: 10G}]")
PARTITION = f'device.attributes["{GPU}"].?profile.orValue("") == "2g.10gb"'
MISSPELT = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "interfacename": "fast0"}
OBJECTS = (
    testing.device_class("gpu", driver=GPU),
    testing.device_class("nic", driver=NIC, expression=f'device.attributes["{NIC}"].ifName == "eth1"'),
    testing.claim("training", device_class="gpu", count=2, expression=PARTITION),
    testing.claim("net", device_class="nic"),
    testing.claim("misspelt", device_class="nic", parameters=MISSPELT, driver=NIC),
    testing.pod("p", claims=["training", "net"]),
    testing.pod("q", claims=["misspelt"]),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What a driver wrote into the cluster: events, entries of ``status.devices`` by claim, and taints."""

    events: set[tuple[str, ...]]
    statuses: Mapping[str, list[Object]]
    taints: set[tuple[str, ...]]


def events(cluster: clusters.LocalCluster) -> set[tuple[str, ...]]:
    return {
        (
            *(json_types.text(item, key) for key in ("type", "reason")),
            f"pod/{json_types.text(item, 'involvedObject', 'name')}",
            json_types.text(item, "message"),
        )
        for item in cluster.api.list(resources.EVENT, namespace="default").items
    }


def statuses(cluster: clusters.LocalCluster) -> Mapping[str, list[Object]]:
    items = cluster.api.list(resources.CLAIM, namespace="default").items
    return {json_types.text(item, "metadata", "name"): json_types.objects(item, "status", "devices") for item in items}


def taints(cluster: clusters.LocalCluster) -> set[tuple[str, ...]]:
    found = [device for item in cluster.api.list(resources.SLICE).items for device in json_types.objects(item, "spec", "devices")]
    return {key_of(taint) for device in found for taint in json_types.objects(device, "taints")}


def key_of(taint: Object) -> tuple[str, ...]:
    return tuple(json_types.text(taint, key) for key in ("key", "value", "effect"))


def fault(root: pathlib.Path, machine: pathlib.Path, *words: str) -> None:
    """Let something happen to a GPU of the node."""
    subprocess.run([sys.executable, str(FAULT), str(machine), str(root / "mock"), NODE, *words], check=True, timeout=waits.SECONDS)


@pytest.fixture(scope="module")
def seen(commands: forked_cli.Commands) -> Iterator[Seen]:
    """A node whose first GPU reports an Xid and whose second is lost, while claims of partitions and with a misspelt parameter are there."""
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        root, machine = cluster.node(NODE).folder.root, pathlib.Path(folder) / "machine.yaml"
        machine.write_text((pathlib.Path(machines.__file__).parent / "dgx-a100-40gb-2gpu.yaml").read_text("utf-8") + UNLINKED)
        words = ["--mock", str(machine), "--node", NODE, "--folder", str(root), "--kubeconfig", str(cluster.driver_kubeconfig(NODE))]
        words += [word for setting in SETTINGS for word in ("--set", setting)]
        with driver_process.running(driver_process.drakit("run", *words), root / "log", commands=commands) as driver:
            for item in OBJECTS:
                kind = next(one for one in resources.ALL if (one.api_version, one.kind) == (item["apiVersion"], item["kind"]))
                cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")
            until(lambda: all(statuses(cluster).values()), driver)
            until(lambda: "data" in statuses(cluster)["net"][0], driver)
            written = statuses(cluster)
            fault(root, machine, "report_xid", "0", "79")
            fault(root, machine, "lose", "1")
            until(lambda: len(taints(cluster)) >= 6, driver)
            until(lambda: any("GpuFault" in event for event in events(cluster)), driver)
            yield Seen(events=events(cluster), statuses=written, taints=taints(cluster))


def until(condition: Callable[[], bool], driver: driver_process.Process) -> None:
    deadline = time.monotonic() + waits.SECONDS
    while not condition():
        assert time.monotonic() < deadline, driver.said()
        time.sleep(0.1)


def blocks(mark: str) -> dict[str, str]:
    return {block.value: block.text for page in (PAGE, NICS) for block in markdown.blocks(page) if block.mark == mark}


def masked(value: object) -> object:
    """An entry of a status with what differs between two runs left out."""
    if isinstance(value, Mapping):
        return {key: "" if key in CHANGING else masked(content) for key, content in value.items()}
    return [masked(one) for one in value] if isinstance(value, list) else value


def test_the_events_shown_are_those_of_a_driver_or_have_the_text_of_the_code(seen: Seen) -> None:
    head, *lines = blocks("events")["kubectl"].splitlines()
    assert re.split(r" {2,}", head) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    shown = [tuple(re.split(r" {2,}", line)[1:]) for line in lines]
    texts = {
        "SeveralMpsDaemons": usage_warnings._MPS,
        "ShareNotAttached": collector._NOT_ATTACHED.format(device="pci-0000-0c-00-0", seconds=collector.GRACE),
        "DhcpLeaseLost": dhcp_renewal._LOST.format(
            address="10.66.0.50/24", pod="default/p", reason="the server 10.66.0.1 gives 10.66.0.99/24 now"
        ),
        held_devices.EVENT_REASON: f"gpu-0-mig-2g10gb-14-2: {held_devices._GONE}{held_devices._WITHHELD}",
        held_devices.WITHHELD_EVENT_REASON: f"pci-0000-0c-00-0: eth2 has an address of the host{held_devices._KEPT}",
        "DeviceStatusNotWritten": f"status.devices: {status._WHITE_SPACE}",
    }
    assert [event for event in shown if event not in seen.events and event[3] != texts.get(event[1])] == []
    assert {event[1] for event in shown} - texts.keys() == {"GpuFault", "SeveralMigDevices"}
    assert {event[1] for event in shown} == markdown.table_names(PAGE.read_text("utf-8").split("\n## Conditions", 1)[0])


def test_the_statuses_shown_are_those_of_claims(seen: Seen) -> None:
    for claim, text in blocks("status").items():
        shown = documents.load(text)
        (entry,) = [one for one in seen.statuses[claim] if one["device"] == shown["device"]]
        assert masked(entry) == masked(shown)


def test_the_taints_shown_are_those_of_devices(seen: Seen) -> None:
    shown = {key_of(taint) for taint in documents.load(blocks("taints")["all"])["taints"]}
    memory = faults.from_memory_error("gpu-0", 0)
    fabric = faults.from_observation(0, faults.Observation(fabric="route-unhealthy"), 0)
    changed = faults.from_observation(0, faults.Observation(changes={"gpu-0": "the claim's MIG device was deleted"}), 0)
    made = faults.taints((memory, *fabric, *changed), GPU, faults.HealthPolicy(), 0)["gpu-0"]
    assert shown == seen.taints | {(taint.key, taint.value, taint.effect.value) for taint in made}
