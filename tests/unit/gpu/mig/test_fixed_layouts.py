"""A fixed MIG layout: its partitions are plain devices without counters, always the same, and nothing else of the GPU is offered."""

import contextlib
import dataclasses
import pathlib
import threading
from concurrent import futures

import pytest

from drakit import families, machines, settings
from drakit.core import device, driver, errors
from drakit_gpu import assembly, options, port
from drakit_gpu import driver as gpu_driver
from drakit_gpu.inventory import discovery
from drakit_gpu.mig import layouts, partitioning
from drakit_gpu.mock import mock_gpus
from fakes import gpu_node, installed_drivers

MIXED = {"3g.20gb": 1, "1g.5gb": 3, "1g.5gb+me": 1}
MIXED_NAMES = {"3g20gb-9-4", "1g5gb-19-0", "1g5gb-19-1", "1g5gb-19-2", "1g5gb-me-20-3"}


def layout(match: str = "gpu-*", /, **partitions: int) -> options.MigLayout:
    return options.MigLayout(match=match, partitions=partitions)


def fixed_node(folder: pathlib.Path, *chosen: options.MigLayout, machine: str = "dgx-a100-40gb-2gpu") -> gpu_node.GpuNode:
    return gpu_node.GpuNode(folder, machine, layouts=chosen)


def offered(node: gpu_node.GpuNode) -> dict[str, device.Device]:
    return dict(node.driver.discover().flat().by_name())


def refusals(node: gpu_node.GpuNode) -> list[tuple[str, str, str]]:
    node.driver.discover()
    return [(item.name, item.reason, item.change) for item in node.driver.not_offered() if item.kind == "GPU"]


def partitions_of(folder: pathlib.Path, machine: str) -> tuple[partitioning.Partition, ...]:
    hardware = mock_gpus.MockGpus(machines.Choice(name=machine, directory=folder))
    gpu = hardware.gpus()[0].uuid
    profiles = hardware.gpu_instance_profiles(gpu)
    return partitioning.partitions((profile, hardware.possible_placements(gpu, profile.id)) for profile in profiles)


def test_a_layout_is_offered_without_counters_and_nothing_else_of_the_gpu(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout("gpu-0", **MIXED))
    inventory = node.driver.discover().flat()
    first = {name: found for name, found in inventory.by_name().items() if name.startswith("gpu-0")}
    assert set(first) == {f"gpu-0-mig-{name}" for name in MIXED_NAMES}
    assert not any(found.consumes for found in first.values())
    assert [counter_set.name for counter_set in inventory.counter_sets] == ["gpu-1-counter-set"], "the other GPU is as before"
    assert "gpu-1" in inventory.by_name()


def test_a_partition_of_a_layout_has_the_attributes_that_it_has_without_one(tmp_path: pathlib.Path) -> None:
    plain = offered(gpu_node.GpuNode(tmp_path / "a"))
    for name, found in offered(fixed_node(tmp_path / "a", layout(**MIXED))).items():
        assert dataclasses.replace(plain[name], consumes=()) == found


def test_a_layout_without_partitions_offers_the_whole_gpu_without_counters(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout(), machine="dgx-h100")
    inventory = node.driver.discover().flat()
    assert sorted(inventory.by_name()) == [f"gpu-{number}" for number in range(8)]
    assert not inventory.counter_sets
    assert not any(found.consumes for found in inventory.devices)
    assert {found.attributes["migMode"] for found in inventory.devices} == {"off"}


def test_the_first_layout_that_matches_a_gpu_counts(tmp_path: pathlib.Path) -> None:
    chosen = (layout("gpu-1", **{"7g.40gb": 1}), layout("product:NVIDIA A100-*", **{"1g.10gb": 4}), layout(**{"1g.5gb": 1}))
    names = offered(fixed_node(tmp_path, *chosen))
    assert sorted(names) == [*(f"gpu-0-mig-1g10gb-15-{start}" for start in (0, 2, 4, 6)), "gpu-1-mig-7g40gb-0-0"]


def test_a_gpu_of_another_product_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout("product:NVIDIA H100*", **{"1g.10gb": 7}))
    assert offered(node) == offered(gpu_node.GpuNode(tmp_path))


@pytest.mark.parametrize("machine", ["dgx-a100-40gb", "dgx-h100", "hgx-b200", "hgx-h200"])
def test_every_profile_fits_as_often_as_the_hardware_says(tmp_path: pathlib.Path, machine: str) -> None:
    possible = partitions_of(tmp_path, machine)
    for profile in {partition.profile for partition in possible}:
        placed = layouts.place(possible, {profile.name: profile.instances})
        assert [partition.profile for partition in placed] == [profile] * profile.instances
        assert not any(one.placement.overlaps(other.placement) for one in placed for other in placed if one is not other)
        with pytest.raises(layouts.LayoutError, match="do not fit together on one GPU"):
            layouts.place(possible, {profile.name: profile.instances + 1})


def test_the_order_in_which_a_layout_names_profiles_does_not_matter(tmp_path: pathlib.Path) -> None:
    possible = partitions_of(tmp_path, "dgx-a100-40gb")
    assert layouts.place(possible, MIXED) == layouts.place(possible, dict(reversed(MIXED.items())))


@pytest.mark.parametrize(
    "wanted, reason",
    [
        ({"1g.5gb": 8}, "gpu.mig_layouts[0].partitions: 8 x 1g.5gb do not fit together on one GPU"),
        (
            {"1g.10gb+me": 1, "1g.6gb": 1},
            (
                "gpu.mig_layouts[0].partitions: the GPU has no profile 1g.10gb+me, 1g.6gb; it has 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, "
                "4g.20gb, 7g.40gb"
            ),
        ),
    ],
)
def test_a_gpu_that_cannot_have_its_layout_is_not_offered_and_says_why(tmp_path: pathlib.Path, wanted: dict[str, int], reason: str) -> None:
    node = fixed_node(tmp_path, layout("gpu-0", **wanted))
    assert not [name for name in offered(node) if name.startswith("gpu-0")]
    fix = "correct gpu.mig_layouts[0].partitions; nvidia-smi mig -lgip and -lgipp list profiles and placements"
    assert refusals(node) == [("gpu-0", reason, fix)]


@pytest.mark.parametrize(
    "chosen, gpu, reason, fix",
    [
        (
            layout("gpu-14", **{"1g.5gb": 1}),
            "gpu-14",
            "gpu.mig_layouts[0].partitions names 1 x 1g.5gb, but the GPU has no MIG",
            "write a glob in gpu.mig_layouts[0].match that does not match this GPU",
        ),
        (
            layout("gpu-1", **{"1g.5gb": 1}),
            "gpu-1",
            "gpu.mig_layouts[0].partitions names 1 x 1g.5gb, but MIG mode is off",
            "turn MIG mode on (nvidia-smi -i 0000:14:00.0 -mig 1), or write a glob in gpu.mig_layouts[0].match that does not match this GPU",
        ),
        (
            layout("gpu-0"),
            "gpu-0",
            "gpu.mig_layouts[0].partitions is empty, so the GPU is offered as a whole only, but MIG mode is on",
            "turn MIG mode off (nvidia-smi -i 0000:10:00.0 -mig 0), or name profiles in gpu.mig_layouts[0].partitions",
        ),
    ],
)
def test_a_gpu_whose_mig_mode_does_not_fit_its_layout_is_not_offered(
    tmp_path: pathlib.Path, chosen: options.MigLayout, gpu: str, reason: str, fix: str
) -> None:
    node = fixed_node(tmp_path, chosen, machine="mixed-16gpu")
    node.driver = gpu_driver.GpuDriver(node.hardware, options=discovery.DiscoveryOptions(layouts=node.layouts))
    assert not [name for name in offered(node) if name == gpu or name.startswith(f"{gpu}-")]
    assert refusals(node) == [(gpu, reason, fix)]


def test_an_instance_of_an_admin_takes_its_place_in_the_layout(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout("gpu-0", **MIXED), layout("gpu-1"))
    gpu = node.hardware.gpus()[0].uuid
    node.hardware.create_gpu_instance(gpu, 20, port.Placement(start=6, size=1))
    assert set(offered(node)) == {"gpu-0-mig-1g5gb-19-0", "gpu-0-mig-1g5gb-19-1", "gpu-0-mig-1g5gb-19-2", "gpu-1"}, (
        "3g.20gb overlaps it, and a GPU has one 1g.5gb+me"
    )


def test_all_partitions_of_a_layout_can_be_prepared_and_survive_a_restart(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout(**MIXED))
    before = node.driver.discover()
    for name in sorted(MIXED_NAMES):
        node.prepare(f"gpu-0-mig-{name}", uid=name)
    assert len(node.instances()) == len(MIXED_NAMES)
    node.restart()
    assert node.driver.discover() == before, "what claims hold stays offered, without counters"
    for name in sorted(MIXED_NAMES):
        node.unprepare(name)
    assert not node.instances()


@pytest.mark.parametrize("crash_at", range(0, 60, 3))
def test_a_crash_while_a_layout_is_prepared_leaves_nothing_behind(tmp_path: pathlib.Path, crash_at: int) -> None:
    node = fixed_node(tmp_path, layout(**MIXED))
    before = node.driver.discover()
    node.prepare("gpu-0-mig-3g20gb-9-4", uid="other")
    node.restart(crash_at=crash_at)
    try:
        node.prepare("gpu-0-mig-1g5gb-19-1")
    except gpu_node.CrashError:
        node.restart()
        node.recover()
    else:
        node.restart()
        node.unprepare()
    assert node.instances() == [(0, 9, 4)]
    assert node.driver.discover() == before


def test_a_partition_that_the_layout_does_not_name_is_never_created(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout(**MIXED))
    with pytest.raises(errors.ClaimError, match="gpu-0-mig-1g5gb-19-6 is not offered"):
        node.prepare("gpu-0-mig-1g5gb-19-6")
    assert not node.instances()


def test_engines_of_a_partition_that_a_claim_holds_are_not_offered_twice(tmp_path: pathlib.Path) -> None:
    """A GPU has one 1g.5gb+me, wherever it is."""
    node = gpu_node.GpuNode(tmp_path)
    node.prepare("gpu-0-mig-1g5gb-me-20-0")
    node.layouts = (layout("gpu-0", **{"3g.20gb": 1, "1g.5gb+me": 1}), layout("gpu-1"))
    node.restart()
    assert set(offered(node)) == {"gpu-0-mig-3g20gb-9-4", "gpu-1"}
    assert node.driver.withheld_devices()["gpu-0-mig-1g5gb-me-20-0"] == "gpu.mig_layouts does not name it"
    node.unprepare()
    assert set(offered(node)) == {"gpu-0-mig-3g20gb-9-4", "gpu-0-mig-1g5gb-me-20-3", "gpu-1"}


def test_devices_of_a_gpu_that_cannot_have_its_layout_are_withheld_with_the_reason(tmp_path: pathlib.Path) -> None:
    node = fixed_node(tmp_path, layout(**{"1g.5gb": 8}))
    node.driver.discover()
    assert node.driver.withheld_devices()["gpu-0-mig-1g5gb-19-0"] == (
        "gpu.mig_layouts[0].partitions: 8 x 1g.5gb do not fit together on one GPU; "
        "correct gpu.mig_layouts[0].partitions; nvidia-smi mig -lgip and -lgipp list profiles and placements"
    )


def test_two_partitions_of_a_layout_change_their_gpu_one_after_the_other(tmp_path: pathlib.Path) -> None:
    """Their locks differ, so the engine prepares them at once."""
    node = fixed_node(tmp_path, layout(**{"3g.40gb": 2}), machine="server-h100-pcie")
    names = ("gpu-1-mig-3g40gb-9-0", "gpu-1-mig-3g40gb-9-4")
    meeting, together = threading.Barrier(2), []

    def meet(step: str) -> None:
        if step in {"before set_mig_mode", "before create_gpu_instance"}:
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(0.5)
                together.append(step)

    grants = [node.grant(name, uid=name) for name in names]
    assert set(grants[0].device.lock_names).isdisjoint(grants[1].device.lock_names)
    node.driver = gpu_driver.GpuDriver(
        gpu_node.stepping(node.hardware, meet), intents=node.intents, options=discovery.DiscoveryOptions(layouts=node.layouts)
    )
    driver.open_driver(node.driver, node.planned)
    with futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(node.prepare_again, grants))
    assert not together
    assert sorted(node.instances()) == [(1, 9, 0), (1, 9, 4)]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"match": "gpu-0", "partitions": {"5gb": 1}}, "'5gb' is not a MIG profile, such as 1g.5gb; nvidia-smi mig -lgip lists them"),
        ({"match": "gpu-0", "partitions": {"1g.5gb": 0}}, "0 is below the limit 1"),
        ({"match": "index:0", "partitions": {}}, "'index:0' is neither a device name, such as gpu-0 or gpu-*, nor product:NAME"),
        ({"match": "gpu-0"}, "partitions"),
        ({"match": "gpu-0", "partitions": {}, "devices": 1}, "devices"),
    ],
)
def test_a_bad_layout_is_refused_with_its_field(given: dict[str, object], message: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"^gpu\.mig_layouts\.0\.") as refused:
        settings.load({"gpu.mig_layouts": [given]}, environ={})
    assert message in str(refused.value)


def test_layouts_and_shared_partitions_exclude_each_other(tmp_path: pathlib.Path) -> None:
    given = options.GpuOptions(share_mig=True, shares=2, mig_layouts=(layout(**MIXED),))
    site = families.Site(node="node-1", driver_name=gpu_driver.NAME, home=tmp_path, pods=installed_drivers.no_pods)
    with pytest.raises(errors.SettingsError, match=r"^gpu\.mig_layouts: .*remove gpu\.share_mig or gpu\.mig_layouts"):
        assembly.assemble(given, site)
