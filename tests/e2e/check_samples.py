"""Every file of daemonset/samples, as it is but for image and node."""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterator, Mapping

import pytest
import yaml

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import driver as drivers
from e2e import workspace
from e2e.session import Run
from e2e.workspace import Workspace

FOLDER = drivers.ROOT / "daemonset" / "samples"
NAMESPACE_FILE = "00-namespace.yaml"
NAMESPACE = "drakit-demo"
_VARIABLE = re.compile(r"^(GPU_DEVICE_\w+|DRAKIT_NIC_\w+)=(.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """What a file must give. ``sees``: by pod how many devices its containers print, or None for what they do not print.

    ``rates``: by pod the bandwidth that it prints.
    """

    sees: Mapping[str, int | None]
    gates: tuple[str, ...] = ()
    rates: Mapping[str, int] = dataclasses.field(default_factory=dict)


MIG, SHARES = ("DRAPartitionableDevices",), ("DRAConsumableCapacity",)
SAMPLES = {
    "10-mig-partitions": Sample(sees={"four-partitions": 4}, gates=MIG),
    "15-mig-pinned-gpu": Sample(sees={"pinned-gpu": 2}, gates=MIG),
    "20-whole-gpu": Sample(sees={"whole-gpu": 1}),
    "30-shared-nic": Sample(
        sees={"training": 1, "storage": 1, "metrics": 1},
        gates=SHARES,
        rates={"training": 33_340_000_000, "storage": 14_290_000_000, "metrics": 100_000_000},
    ),
    # Alone, both of its pods fit; with the claims of 30-shared-nic.yaml one of them waits.
    "40-waiting": Sample(sees={"first": 1, "second": 1}, gates=SHARES),
    "50-two-nics": Sample(sees={"two-nics": 2}, gates=SHARES),
    "60-one-partition": Sample(sees={"one-partition": 1}, gates=MIG),
    "70-nic-addresses": Sample(sees={"storage-client": None}, gates=SHARES),
}


@pytest.fixture(scope="module")
def namespace(run: Run) -> Iterator[None]:
    """The namespace of the samples, as they make it."""
    [item] = loaded(FOLDER / NAMESPACE_FILE)
    assert json_types.text(item, "metadata", "name") == NAMESPACE
    if run.api.find("Namespace", NAMESPACE) is None:
        run.api.create(item)
    run.api.wait("the namespace's account", lambda: run.api.find("ServiceAccount", "default", NAMESPACE))
    yield
    run.api.delete("Namespace", NAMESPACE)
    run.api.wait_gone("Namespace", NAMESPACE)


@pytest.fixture
def demo(space: Workspace, namespace: None) -> Iterator[Workspace]:
    demo = space.within(NAMESPACE)
    demo.clear_namespace(NAMESPACE)
    yield demo
    demo.clear_namespace(NAMESPACE)


def loaded(file: pathlib.Path) -> list[Object]:
    return [json_types.mapping(one) for one in yaml.safe_load_all(file.read_text())]


def printed(demo: Workspace, pod: str) -> dict[str, str]:
    """The variables that name devices, of all containers."""
    containers = [json_types.text(one, "name") for one in json_types.objects(demo.pod(pod), "spec", "containers")]
    return {name: value for one in containers for name, value in _VARIABLE.findall(demo.output(pod, one))}


def devices(variables: Mapping[str, str]) -> list[str]:
    """What names a device: the UUID of a GPU or partition, the device behind a share."""
    return [value for name, value in variables.items() if name.startswith("GPU_") or name.endswith("_DEVICE")]


def prints(demo: Workspace, pod: str, count: int) -> bool:
    return len(devices(printed(demo, pod))) == count


def test_every_sample_is_checked() -> None:
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {*SAMPLES, NAMESPACE_FILE.removesuffix(".yaml")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.gates(*sample.gates)) for name, sample in SAMPLES.items()])
def test_a_sample_gives_its_pods_their_devices(demo: Workspace, name: str) -> None:
    demo.create(*loaded(FOLDER / f"{name}.yaml"))
    for pod, count in SAMPLES[name].sees.items():
        demo.running(pod)
        if count is not None:
            demo.api.wait(f"{count} devices printed by {pod}", functools.partial(prints, demo, pod, count))
    rates = {pod: value for pod in SAMPLES[name].rates for key, value in printed(demo, pod).items() if key.endswith("_BANDWIDTH")}
    assert rates == {pod: str(rate) for pod, rate in SAMPLES[name].rates.items()}


@pytest.mark.gates(*SHARES)
def test_the_waiting_pod_of_the_sample_starts_when_the_other_ends(demo: Workspace) -> None:
    for name in ("30-shared-nic", "40-waiting"):
        demo.create(*loaded(FOLDER / f"{name}.yaml"))
    demo.api.wait("one of the two pods running", lambda: any(workspace.is_running(demo.pod(name)) for name in ("first", "second")))
    running, waiting = ("first", "second") if workspace.is_running(demo.pod("first")) else ("second", "first")
    demo.pending(waiting)
    demo.end(running)
    demo.running(waiting)
