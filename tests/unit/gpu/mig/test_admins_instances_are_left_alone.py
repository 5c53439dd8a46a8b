"""What drakit did not make it never destroys, and what overlaps it is withheld."""

import dataclasses
import pathlib

import pytest

from drakit.core import errors
from drakit_gpu import port
from fakes import gpu_node

PROFILE_1G, PROFILE_ME, PROFILE_3G = 19, 20, 9


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    return gpu_node.GpuNode(tmp_path)


def admin_makes(node: gpu_node.GpuNode, profile: int, start: int, size: int) -> port.GpuInstance:
    gpu = node.hardware.gpus()[0].uuid
    return node.hardware.create_gpu_instance(gpu, profile, port.Placement(start=start, size=size))


def offered(node: gpu_node.GpuNode) -> set[str]:
    return {device.name for device in node.driver.discover().devices}


def test_partitions_that_overlap_an_admins_instance_are_withheld(node: gpu_node.GpuNode) -> None:
    before = offered(node)
    admin_makes(node, PROFILE_3G, 4, 4)
    withheld = before - offered(node)
    assert withheld == {
        "gpu-0",
        "gpu-0-mig-7g40gb-0-0",
        "gpu-0-mig-3g20gb-9-4",
        "gpu-0-mig-2g10gb-14-4",
        *(f"gpu-0-mig-1g10gb-15-{start}" for start in (4, 6)),
        *(f"gpu-0-mig-1g5gb-19-{start}" for start in (4, 5, 6)),
        *(f"gpu-0-mig-1g5gb-me-20-{start}" for start in (4, 5, 6)),
    }


def test_the_counters_exclude_an_admins_instance(node: gpu_node.GpuNode) -> None:
    admin_makes(node, PROFILE_ME, 6, 1)
    counters = {counter_set.name: counter_set.counters for counter_set in node.driver.discover().flat().counter_sets}["gpu-0-counter-set"]
    result = {name: str(counters[name]) for name in ("multiprocessors", "jpeg-engines", "memory", "memory-slice-6", "memory-slice-0")}
    assert result == {"multiprocessors": "84", "jpeg-engines": "0", "memory": "35328Mi", "memory-slice-6": "0", "memory-slice-0": "1"}
    assert not any("-me-" in name for name in offered(node) if name.startswith("gpu-0"))


def test_everything_is_offered_again_when_the_admin_has_cleared_it(node: gpu_node.GpuNode) -> None:
    before = node.driver.discover()
    made = admin_makes(node, PROFILE_3G, 0, 4)
    assert node.driver.discover() != before
    node.hardware.destroy_gpu_instance(node.hardware.gpus()[0].uuid, made.id)
    assert node.driver.discover() == before


def test_a_placement_taken_by_an_admin_is_refused_with_the_instance(node: gpu_node.GpuNode) -> None:
    grant = node.grant("gpu-0-mig-1g5gb-19-6")
    made = admin_makes(node, PROFILE_1G, 6, 1)
    with pytest.raises(errors.DeviceBusyError, match=f"GPU instance {made.id} .*was not made by this driver"):
        node.driver.plan(grant)
    assert node.instances() == [(0, PROFILE_1G, 6)]


def test_an_admins_instance_created_between_plan_and_prepare_is_refused_and_survives(node: gpu_node.GpuNode) -> None:
    grant = node.grant("gpu-0-mig-3g20gb-9-4")
    planned = dataclasses.replace(grant, intent=node.driver.plan(grant))
    admin_makes(node, PROFILE_1G, 6, 1)
    with pytest.raises(errors.DeviceBusyError, match="is in the way and was not made by this driver"):
        node.driver.prepare(planned)
    node.driver.unprepare(planned)
    assert node.instances() == [(0, PROFILE_1G, 6)]


def test_an_instance_that_replaced_a_claims_own_is_not_destroyed_with_the_claim(node: gpu_node.GpuNode) -> None:
    """An admin destroys the claim's instance and fills the same slot anew, under another id."""
    gpu = node.hardware.gpus()[0].uuid
    node.prepare("gpu-0-mig-1g5gb-19-6")
    first = node.hardware.gpu_instances(gpu)[0]
    node.hardware.destroy_compute_instance(gpu, first.id, 0)
    node.hardware.destroy_gpu_instance(gpu, first.id)
    admin_makes(node, PROFILE_1G, 0, 1)
    second = admin_makes(node, PROFILE_1G, 6, 1)
    assert second.id != first.id
    node.unprepare()
    assert node.instances() == [(0, PROFILE_1G, 0), (0, PROFILE_1G, 6)]


def test_a_claim_whose_instance_is_gone_is_prepared_again(node: gpu_node.GpuNode) -> None:
    gpu = node.hardware.gpus()[0].uuid
    prepared = node.prepare("gpu-0-mig-1g5gb-19-6")
    grant = node.journal["a"].grant
    assert node.driver.prepare(grant) == prepared
    node.hardware.destroy_compute_instance(gpu, 1, 0)
    assert node.driver.prepare(grant).record != prepared.record
    assert not node.mig_devices()
    node.unprepare()
    assert node.prepare("gpu-0-mig-1g5gb-19-6") == prepared


def test_admin_access_uses_an_instance_and_neither_creates_nor_deletes_it(node: gpu_node.GpuNode) -> None:
    with pytest.raises(errors.DeviceGoneError) as refused:
        node.prepare("gpu-0-mig-1g5gb-19-6", uid="admin", admin_access=True)
    assert str(refused.value) == (
        "gpu-0-mig-1g5gb-19-6: adminAccess creates no MIG device, and no claim has created this one; "
        "leave adminAccess out, or select a GPU without MIG; Kubernetes 1.36 allocates no MIG device in use to an admin claim"
    )
    node.unprepare("admin")
    prepared = node.prepare("gpu-0-mig-1g5gb-19-6", uid="a")
    watched = node.prepare("gpu-0-mig-1g5gb-19-6", uid="admin", request="watch", admin_access=True)
    assert watched.record == prepared.record
    node.unprepare("admin")
    assert node.instances() == [(0, PROFILE_1G, 6)]
    node.unprepare("a")
    assert not node.instances()


def admin_makes_a_mig_device(node: gpu_node.GpuNode, profile: int, start: int, size: int) -> tuple[port.GpuInstance, port.ComputeInstance]:
    gpu = node.hardware.gpus()[0].uuid
    made = admin_makes(node, profile, start, size)
    whole = max(node.hardware.compute_instance_profiles(gpu, made), key=lambda profile: profile.slices)
    return made, node.hardware.create_compute_instance(gpu, made.id, whole.id)


STATIC = "gpu-0-mig-3g20gb-9-4"


def test_an_admins_mig_device_is_offered_and_overlapping_ones_are_not(node: gpu_node.GpuNode) -> None:
    before = {device.name: device for device in node.driver.discover().flat().devices}
    _, compute = admin_makes_a_mig_device(node, PROFILE_3G, 4, 4)
    after = {device.name: device for device in node.driver.discover().flat().devices}
    assert before.keys() - after.keys() >= {"gpu-0", "gpu-0-mig-1g5gb-19-6", "gpu-0-mig-7g40gb-0-0"}
    static = after[STATIC]
    assert static.attributes == {**before[STATIC].attributes, "uuid": compute.mig_uuid}
    assert static.capacity == before[STATIC].capacity
    assert not static.consumes, "its share is off the counters, whether it is allocated or not"


def test_a_claim_gets_an_admins_mig_device_and_leaves_it_as_it_was(node: gpu_node.GpuNode) -> None:
    _, compute = admin_makes_a_mig_device(node, PROFILE_3G, 4, 4)
    prepared = node.prepare(STATIC)
    assert prepared.record["uuid"] == compute.mig_uuid
    assert node.restart().prepare(node.journal["a"].grant) == prepared
    assert STATIC in offered(node)
    node.unprepare()
    assert node.mig_devices() == [compute.mig_uuid]


def test_partitions_are_made_beside_an_admins_mig_device(node: gpu_node.GpuNode) -> None:
    admin_makes_a_mig_device(node, PROFILE_3G, 4, 4)
    node.prepare("gpu-0-mig-4g20gb-5-0")
    assert sorted(node.instances()) == [(0, 5, 0), (0, PROFILE_3G, 4)]
    node.unprepare()
    assert node.instances() == [(0, PROFILE_3G, 4)]


def test_an_admins_deleted_mig_device_is_not_recreated(node: gpu_node.GpuNode) -> None:
    made, compute = admin_makes_a_mig_device(node, PROFILE_3G, 4, 4)
    grant = node.grant(STATIC)
    planned = dataclasses.replace(grant, intent=node.driver.plan(grant))
    gpu = node.hardware.gpus()[0].uuid
    node.hardware.destroy_compute_instance(gpu, made.id, compute.id)
    node.hardware.destroy_gpu_instance(gpu, made.id)
    with pytest.raises(errors.DeviceGoneError, match="drakit makes none in its place"):
        node.driver.prepare(planned)
    node.driver.unprepare(planned)
    assert not node.instances()


def test_an_instance_shared_by_several_compute_instances_is_withheld(node: gpu_node.GpuNode) -> None:
    gpu = node.hardware.gpus()[0].uuid
    made = admin_makes(node, PROFILE_3G, 4, 4)
    smallest = min(node.hardware.compute_instance_profiles(gpu, made), key=lambda profile: profile.slices)
    for _ in range(3):
        node.hardware.create_compute_instance(gpu, made.id, smallest.id)
    assert STATIC not in offered(node)


def test_admin_access_to_a_mig_device_that_its_admin_removed_names_it(node: gpu_node.GpuNode) -> None:
    made, compute = admin_makes_a_mig_device(node, PROFILE_3G, 4, 4)
    grant = node.grant("gpu-0-mig-3g20gb-9-4", uid="admin", admin_access=True)
    gpu = node.hardware.gpus()[0].uuid
    node.hardware.destroy_compute_instance(gpu, made.id, compute.id)
    node.hardware.destroy_gpu_instance(gpu, made.id)
    planned = dataclasses.replace(grant, intent=node.driver.plan(grant))
    with pytest.raises(errors.DeviceGoneError, match=rf"the MIG device {compute.mig_uuid} is gone, and drakit makes none in its place"):
        node.driver.prepare(planned)
