"""A MIG device exists from prepare to unprepare, and its container gets what CUDA needs to see it."""

import dataclasses
import pathlib

import pytest

from drakit import machines, vfio
from drakit.core import device, errors, records
from drakit_gpu import cdi, config, identity, nvml_errors, port
from drakit_gpu.inventory import attributes
from drakit_gpu.mig import instances
from drakit_gpu.mock import fault_injection
from fakes import gpu_node


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    return gpu_node.GpuNode(tmp_path)


def test_preparing_a_partition_makes_its_mig_device_where_the_scheduler_put_it(node: gpu_node.GpuNode) -> None:
    prepared = node.prepare("gpu-1-mig-2g10gb-14-4")
    assert node.instances() == [(1, 14, 4)]
    assert [prepared.record["uuid"]] == node.mig_devices()


def test_the_container_gets_its_mig_devices_uuid_and_the_nodes_that_open_it(node: gpu_node.GpuNode) -> None:
    prepared = node.prepare("gpu-1-mig-2g10gb-14-4", request="big/trainer")
    assert dict(prepared.edits.env) == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "GPU_DEVICE_BIG_TRAINER_GPU_1_MIG_2G10GB_14_4": prepared.record["uuid"],
    }
    nodes = [(node.path, node.type, node.major, node.minor) for node in prepared.edits.device_nodes]
    assert nodes == [
        ("/dev/nvidia1", "c", 195, 1),
        ("/dev/nvidiactl", "c", 195, 255),
        ("/dev/nvidia-modeset", "c", 195, 254),
        ("/dev/nvidia-uvm", "c", 511, 0),
        ("/dev/nvidia-uvm-tools", "c", 511, 1),
        ("/dev/nvidia-caps/nvidia-cap147", "c", 510, 147),
        ("/dev/nvidia-caps/nvidia-cap148", "c", 510, 148),
    ]


def test_a_whole_gpu_is_prepared_unchanged(node: gpu_node.GpuNode) -> None:
    prepared = node.prepare("gpu-0")
    uuid = node.device("gpu-0").attributes["uuid"]
    assert prepared.record == {"uuid": uuid}
    assert prepared.edits.env["GPU_DEVICE_GPU_GPU_0"] == uuid
    assert all("caps" not in device_node.path for device_node in prepared.edits.device_nodes)
    node.unprepare()
    assert not node.instances()


def test_two_claims_in_one_container_do_not_overwrite_each_others_variable(node: gpu_node.GpuNode) -> None:
    first = node.prepare("gpu-0-mig-1g5gb-19-6", uid="a", request="gpu")
    second = node.prepare("gpu-0-mig-1g5gb-19-5", uid="b", request="gpu")
    merged = {**first.edits.env, **second.edits.env}
    assert {first.record["uuid"], second.record["uuid"]} <= set(merged.values())


def test_variables_are_words_a_shell_can_read() -> None:
    assert cdi.variable("a-b/c-d", "gpu-0") == "GPU_DEVICE_A_B_C_D_GPU_0"


def test_the_keps_four_partitions_lie_side_by_side_on_one_gpu(node: gpu_node.GpuNode) -> None:
    names = ["gpu-0-mig-1g5gb-19-0", "gpu-0-mig-1g5gb-19-1", "gpu-0-mig-2g10gb-14-2", "gpu-0-mig-3g20gb-9-4"]
    for name in names:
        node.prepare(name, uid=name)
    assert node.instances() == [(0, 19, 0), (0, 19, 1), (0, 14, 2), (0, 9, 4)]
    assert len(set(node.mig_devices())) == 4
    for name in names:
        node.unprepare(name)
    assert not node.instances()


def test_prepare_again_gives_the_same_answer_and_makes_nothing(node: gpu_node.GpuNode) -> None:
    prepared = node.prepare("gpu-0-mig-1g5gb-19-6")
    for _ in range(3):
        assert node.restart().prepare(node.journal["a"].grant) == prepared
    assert len(node.mig_devices()) == 1


def test_unprepare_without_prepare_and_unprepare_twice_succeed(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    grant = node.journal["a"].grant
    node.driver.unprepare(grant)
    node.driver.unprepare(grant)
    node.driver.unprepare(dataclasses.replace(grant, intent={}, record={}))
    assert not node.instances()


def test_unprepare_knows_what_to_remove_from_the_intent_alone(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    node.restart().unprepare(dataclasses.replace(node.journal["a"].grant, record={}))
    assert not node.instances()


def test_a_partition_another_claim_still_holds_is_refused(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-3g20gb-9-4", uid="a")
    for name in ("gpu-0-mig-3g20gb-9-4", "gpu-0-mig-1g5gb-19-6", "gpu-0"):
        with pytest.raises(errors.DeviceBusyError, match="belongs to another claim"):
            node.prepare(name, uid="b")
    assert node.instances() == [(0, 9, 4)]


def test_a_failed_compute_instance_takes_its_gpu_instance_with_it_at_once(node: gpu_node.GpuNode) -> None:
    injector = fault_injection.Faults(node.choice.directory)
    injector.arm(
        fault_injection.Fault(
            call="create_compute_instance",
            moment=fault_injection.Moment.BEFORE,
            action=fault_injection.Action.FAIL,
            code=nvml_errors.Code.NO_PERMISSION,
        )
    )
    with pytest.raises(nvml_errors.CallError, match="nvmlGpuInstanceCreateComputeInstance: NO_PERMISSION"):
        node.prepare("gpu-0-mig-1g5gb-19-6")
    assert not node.instances()


def test_a_failed_undo_is_reported_and_completed_later(node: gpu_node.GpuNode) -> None:
    injector = fault_injection.Faults(node.choice.directory)
    for call in ("create_compute_instance", "destroy_gpu_instance"):
        injector.arm(fault_injection.Fault(call=call, moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL))
    with pytest.raises(nvml_errors.CallError) as caught:
        node.prepare("gpu-0-mig-1g5gb-19-6")
    assert "could not be deleted either" in caught.value.__notes__[0]
    assert node.instances() == [(0, 19, 6)]
    node.recover()
    assert not node.instances()


def test_a_device_in_use_is_busy_and_its_users_are_named_until_it_is_free(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    gpu = node.hardware.gpus()[0].uuid
    for pid in (4711, 815):
        node.hardware.attach(gpu, pid, 1)
    node.hardware.attach(gpu, 99)
    with pytest.raises(
        errors.DeviceBusyError, match=r"at memory slice 6 of .* is still in use by processes 815, 4711: nvmlComputeInstanceDestroy"
    ):
        node.unprepare()
    assert node.pauses == list(instances.PAUSES), "it was tried five times, with bounded pauses"
    for pid in (4711, 815):
        node.hardware.detach(gpu, pid)
    node.unprepare()
    assert not node.instances()


@pytest.mark.parametrize("times", range(1, 5))
def test_a_device_that_is_free_a_moment_later_is_removed_at_once(node: gpu_node.GpuNode, times: int) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    fault = fault_injection.Fault(
        call="destroy_gpu_instance",
        moment=fault_injection.Moment.BEFORE,
        action=fault_injection.Action.FAIL,
        code=nvml_errors.Code.IN_USE,
        times=times,
    )
    fault_injection.Faults(node.choice.directory).arm(fault)
    node.unprepare()
    assert node.pauses == list(instances.PAUSES[:times])
    assert not node.instances()


def test_a_user_that_nvml_does_not_name_is_still_an_error_that_says_so(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    fault = fault_injection.Fault(
        call="destroy_gpu_instance",
        moment=fault_injection.Moment.BEFORE,
        action=fault_injection.Action.FAIL,
        code=nvml_errors.Code.IN_USE,
        times=9,
    )
    unknown = fault_injection.Fault(call="running_processes", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL)
    fault_injection.Faults(node.choice.directory).arm(fault, unknown)
    with pytest.raises(errors.DeviceBusyError, match="in use by a process that NVML does not name"):
        node.unprepare()


def test_a_reboot_takes_the_instances_and_unprepare_finds_nothing_to_do(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    machines.reboot(node.choice.directory)
    assert not node.instances()
    gpu = node.hardware.gpus()[0].uuid
    node.hardware.create_gpu_instance(gpu, 19, port.Placement(start=6, size=1))
    node.unprepare()
    assert node.instances() == [(0, 19, 6)], "what an admin made in the new boot stays"


def test_an_intent_of_an_earlier_boot_is_not_carried_out(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    machines.reboot(node.choice.directory)
    grant = node.journal["a"].grant
    assert not node.driver.prepare(grant).record
    with pytest.raises(errors.DeviceGoneError, match="earlier boot"):
        node.driver.prepare(dataclasses.replace(grant, record={}))
    assert not node.instances()


def test_a_gpu_that_left_the_machine_is_gone(node: gpu_node.GpuNode) -> None:
    stranger = device.Device(name="gpu-0", attributes={**node.device("gpu-0").attributes, "uuid": "GPU-elsewhere"})
    node.prepare("gpu-0")
    with pytest.raises(errors.DeviceGoneError, match="GPU-elsewhere"):
        node.driver.plan(dataclasses.replace(node.journal["a"].grant, device=stranger))


def test_with_mig_mode_turned_off_prepare_fails_and_unprepare_succeeds(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-0-mig-1g5gb-19-6")
    grant = dataclasses.replace(node.journal["a"].grant, record={})
    node.driver.unprepare(grant)
    node.hardware.set_mig_mode(node.hardware.gpus()[0].uuid, enabled=False)
    with pytest.raises(errors.DeviceGoneError, match="MIG mode is gone"):
        node.driver.prepare(grant)
    node.driver.unprepare(grant)


@pytest.mark.parametrize("intent", [{"gpu": "GPU-1"}, {"boot": "x"}, {"boot": "x", "gpu": "GPU-1", "profile": "19", "start": 0, "size": 1}])
def test_an_intent_that_cannot_be_read_is_an_error_and_owns_nothing(intent: dict[str, object]) -> None:
    record = records.freeze_record(intent)
    with pytest.raises(errors.JournalError):
        identity.Identity.from_record(record)
    assert identity.owned_slots([record], "x") == frozenset()


@pytest.mark.parametrize(
    "part, newer",
    [
        ("settings", {"timeSlice": "ExtraLong"}),
        ("settings", {"computeMode": "X"}),
        ("settings", {"mps": {"percentage": 50.5}}),
        ("settings", ["other"]),
        (vfio.KEY, {"boot": "x", "address": "a", "groups": [1]}),
        (vfio.KEY, "other"),
    ],
)
def test_an_intent_with_an_unreadable_part_owns_its_slot(part: str, newer: object) -> None:
    record = records.freeze_record({"boot": "x", "gpu": "GPU-1", "profile": 19, "start": 0, "size": 1, "holder": "h", part: newer})
    (read,) = identity.from_intents([record], "x")
    assert identity.owned_slots([record], "x") == {read.slot}
    assert read.has_daemon is ("mps" in str(newer))
    assert read.to_record() == record
    with pytest.raises(errors.JournalError, match="cannot be read"):
        _ = read.settings if part == "settings" else read.plan
    assert not (read.plan if part == "settings" else read.settings)


def test_an_instance_of_a_claim_with_newer_settings_is_kept_and_none_is_made_for_it(node: gpu_node.GpuNode) -> None:
    grant = node.grant("gpu-0-mig-1g5gb-19-6")
    newer = records.freeze_record({**node.driver.plan(grant), "settings": {"mps": {"percentage": 50.5}}})
    node.journal["a"] = gpu_node.JournalEntry(grant=dataclasses.replace(grant, intent=newer))
    with pytest.raises(errors.JournalError, match="cannot be read"):
        node.driver.prepare(node.journal["a"].grant)
    assert not node.instances()
    node.hardware.create_gpu_instance(node.hardware.gpus()[0].uuid, 19, port.Placement(start=6, size=1))
    assert not node.driver.unclaimed()
    assert len(node.driver.metrics()) > 0


def test_identities_survive_the_journal(node: gpu_node.GpuNode) -> None:
    for name in ("gpu-0", "gpu-1-mig-1g5gb-me-20-3"):
        for borrowed in (False, True):
            planned = identity.Identity.of(node.grant(name, admin_access=borrowed), boot="b")
            assert planned.borrowed is borrowed
            assert identity.Identity.from_record(planned.to_record()) == planned


def test_configurations_are_for_the_type_of_device_they_name(node: gpu_node.GpuNode) -> None:
    whole, partition = node.device("gpu-0"), node.device("gpu-0-mig-1g5gb-19-6")
    assert set(config.KIND_OF_TYPE) == {value for name, value in vars(attributes).items() if name.startswith("TYPE_")}
    assert node.driver.accepts_config(whole, config.GpuConfig())
    assert node.driver.accepts_config(partition, config.MigConfig())
    assert not node.driver.accepts_config(whole, config.MigConfig())
    assert not node.driver.accepts_config(partition, config.GpuConfig())
