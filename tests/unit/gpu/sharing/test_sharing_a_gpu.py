"""What parameters change of a GPU lasts as long as the claims that want it, is the same for all who share it, and never reaches strangers."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Unpack, cast

import pytest

from drakit import machines
from drakit.core import claim, config, errors, names, quantity, records
from drakit_gpu import config as gpu_config
from drakit_gpu import driver as gpu_driver
from drakit_gpu import nvml_errors, port, share_policy
from drakit_gpu.mock import fault_injection, mock_gpus
from fakes import gpu_node, log_lines, mps_daemon, mps_pods

TERMS = share_policy.SharePolicy(memory=True, number=4, partitions=True)
LONG = gpu_config.GpuConfig(
    sharing=gpu_config.Sharing(
        strategy=gpu_config.Strategy.TIME_SLICING, time_slicing_config=gpu_config.TimeSlicing(interval=port.TimeSlice.LONG)
    )
)
MPS = gpu_config.GpuConfig(sharing=gpu_config.Sharing(strategy=gpu_config.Strategy.MPS))
CLASS, CLAIM = claim.ConfigSource.CLASS, claim.ConfigSource.CLAIM


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[gpu_node.GpuNode]:
    with mps_pods.daemons(tmp_path, mps_daemon.install(tmp_path / "root")) as daemons:
        resources = gpu_driver.HostResources(daemons=daemons)
        yield gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie", terms=TERMS, resources=resources)


def share(number: int, memory: str = "8Gi", **more: Unpack[gpu_node.Fields]) -> gpu_node.Fields:
    amount = quantity.Quantity.parse(memory)
    return {"share_id": names.ShareId(f"00000000-0000-4000-8000-{number:012d}"), "consumed_capacity": {"memory": amount}, **more}


def state(node: gpu_node.GpuNode, index: int = 1) -> tuple[port.ComputeMode | None, port.TimeSlice]:
    gpu = node.hardware.gpus()[index].uuid
    return node.hardware.compute_mode(gpu), node.hardware.time_slice(gpu)


def decode(parameters: dict[str, object]) -> gpu_config.AnyConfig:
    return cast("gpu_config.AnyConfig", config.decode(records.freeze_record(parameters), gpu_config.TYPES))


PLAIN = (port.ComputeMode.DEFAULT, port.TimeSlice.DEFAULT)


def test_a_time_slice_lasts_from_prepare_to_unprepare(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-1", config=LONG, config_source=CLAIM)
    assert state(node) == (port.ComputeMode.DEFAULT, port.TimeSlice.LONG)
    node.restart().prepare(node.journal["a"].grant)
    node.unprepare()
    assert state(node) == PLAIN


def test_the_admins_compute_mode_is_restored(node: gpu_node.GpuNode) -> None:
    gpu = node.hardware.gpus()[1].uuid
    node.hardware.set_compute_mode(gpu, port.ComputeMode.PROHIBITED)
    node.prepare("gpu-1", config=LONG)
    node.unprepare()
    assert state(node) == (port.ComputeMode.PROHIBITED, port.TimeSlice.DEFAULT)


def test_a_gpu_alone_is_made_exclusive_for_its_mps_daemon(node: gpu_node.GpuNode) -> None:
    prepared = node.prepare("gpu-1", config=MPS, config_source=CLAIM)
    assert state(node)[0] is port.ComputeMode.EXCLUSIVE_PROCESS
    assert prepared.edits.env["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert [mount.container_path for mount in prepared.edits.mounts] == ["/tmp/nvidia-mps", "/dev/shm"]
    assert node.restart().prepare(node.journal["a"].grant) == prepared
    node.unprepare()
    assert state(node) == PLAIN


def test_the_memory_a_share_consumes_is_its_daemons_limit(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> None:
    node.prepare("gpu-1-shared", **share(1, "8Gi", config=MPS, config_source=CLAIM))
    assert "set_default_device_pinned_mem_limit 0 8192M" in mps_daemon.commands_received(tmp_path / "mps")
    assert state(node)[0] is port.ComputeMode.DEFAULT, "an exclusive mode would shut the other shares out"
    node.unprepare()


def test_a_lower_limit_than_the_share_holds(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> None:
    limited = decode(
        {
            "apiVersion": "gpu.drakit.dev/v1",
            "kind": "GpuConfig",
            "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "2Gi", "defaultActiveThreadPercentage": 25}},
        }
    )
    node.prepare("gpu-1-shared", **share(1, "8Gi", config=limited))
    commands = mps_daemon.commands_received(tmp_path / "mps")
    assert commands[2:] == ["set_default_active_thread_percentage 25", "set_default_device_pinned_mem_limit 0 2048M"]
    node.unprepare()


def test_a_partition_has_a_daemon_of_its_own_and_no_compute_mode(node: gpu_node.GpuNode, tmp_path: pathlib.Path) -> None:
    wanted = gpu_config.MigConfig(sharing=gpu_config.MigSharing(strategy=gpu_config.Strategy.MPS))
    prepared = node.prepare("gpu-1-mig-1g10gb-19-6", config=wanted)
    assert mps_daemon.commands_received(tmp_path / "mps")[1] == prepared.record["uuid"]
    assert state(node) == PLAIN
    node.unprepare()
    assert not node.instances()


def test_shares_of_one_gpu_need_equal_settings(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-1-shared", uid="a", **share(1, config=LONG, config_source=CLASS))
    with pytest.raises(errors.DeviceBusyError, match="shared with claims that set time slice Long and compute mode Default, not nothing"):
        node.prepare("gpu-1-shared", uid="b", **share(2))
    node.prepare("gpu-1-shared", uid="c", **share(3, config=LONG, config_source=CLASS))


def test_the_last_share_restores_the_settings(node: gpu_node.GpuNode) -> None:
    gpu = node.hardware.gpus()[1].uuid
    node.hardware.set_compute_mode(gpu, port.ComputeMode.EXCLUSIVE_PROCESS)
    for number, uid in enumerate("abc"):
        node.prepare("gpu-1-shared", uid=uid, **share(number, config=LONG))
    for uid in "ac":
        node.unprepare(uid)
        assert state(node) == (port.ComputeMode.DEFAULT, port.TimeSlice.LONG)
    node.unprepare("b")
    assert state(node) == (port.ComputeMode.EXCLUSIVE_PROCESS, port.TimeSlice.DEFAULT)


def test_a_share_with_newer_settings_keeps_those_of_its_gpu(node: gpu_node.GpuNode) -> None:
    for number, uid in enumerate("ab"):
        node.prepare("gpu-1-shared", uid=uid, **share(number, config=LONG))
    running = node.journal["a"].grant
    newer = records.freeze_record({**running.intent, "settings": {"timeSlice": "ExtraLong", "computeMode": "Default"}})
    node.journal["a"].grant = dataclasses.replace(running, intent=newer)
    node.unprepare("b")
    assert state(node) == (port.ComputeMode.DEFAULT, port.TimeSlice.LONG)
    with pytest.raises(errors.JournalError, match="timeSlice"):
        node.unprepare("a")


def test_a_shared_partition_is_made_by_the_first_share_and_removed_by_the_last(node: gpu_node.GpuNode) -> None:
    name = "gpu-1-mig-2g20gb-14-4-shared"
    made = {node.prepare(name, uid=uid, **share(number)).record["uuid"] for number, uid in enumerate("abc")}
    assert len(made) == 1
    assert node.mig_devices() == list(made)
    for uid in "bac":
        assert node.instances() == [(1, 14, 4)]
        node.unprepare(uid)
    assert not node.instances()


def test_a_crashed_prepare_of_a_share_takes_nothing_from_the_next(node: gpu_node.GpuNode) -> None:
    name = "gpu-1-mig-2g20gb-14-4-shared"
    fault = fault_injection.Fault(call="create_compute_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.FAIL)
    fault_injection.Faults(node.choice.directory).arm(
        fault, dataclasses.replace(fault, call="destroy_compute_instance", moment=fault_injection.Moment.BEFORE)
    )
    with pytest.raises(nvml_errors.CallError):
        node.prepare(name, uid="a", **share(1))
    node.prepare(name, uid="b", **share(2))
    node.recover()
    assert list(node.journal) == ["b"]
    assert node.instances() == [(1, 14, 4)]
    node.unprepare("b")
    assert not node.instances()


@pytest.mark.parametrize("call", ["compute_instances", "compute_instance_profiles", "capability_minors", "device_majors"])
def test_a_failed_share_does_not_affect_other_shares(node: gpu_node.GpuNode, call: str) -> None:
    name = "gpu-1-mig-2g20gb-14-4-shared"
    node.prepare(name, uid="a", **share(1))
    made = node.mig_devices()
    fault_injection.Faults(node.choice.directory).arm(
        fault_injection.Fault(call=call, moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.FAIL)
    )
    with pytest.raises(nvml_errors.CallError):
        node.prepare(name, uid="b", **share(2))
    assert node.mig_devices() == made
    node.recover()
    assert node.mig_devices() == made
    assert list(node.journal) == ["a"]


def test_the_two_forms_of_a_partition_cannot_be_in_use_together(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-1-mig-2g20gb-14-4-shared", uid="a", **share(1))
    with pytest.raises(errors.DeviceBusyError, match="belongs to another claim"):
        node.prepare("gpu-1-mig-2g20gb-14-4", uid="b")


@pytest.mark.parametrize(
    "field,sharing,shared",
    [
        ("sharing.mpsConfig.multiUser", {"strategy": "MPS", "mpsConfig": {"multiUser": True}}, False),
        ("sharing.timeSlicingConfig", {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}, True),
    ],
)
def test_settings_that_affect_others_are_for_classes_only(
    node: gpu_node.GpuNode, field: str, sharing: dict[str, object], *, shared: bool
) -> None:
    wanted = decode({"apiVersion": "gpu.drakit.dev/v1", "kind": "GpuConfig", "sharing": sharing})
    name = "gpu-1-shared" if shared else "gpu-1"
    by_claim, by_class = (
        share(1, config=wanted, config_source=who) if shared else gpu_node.Fields(config=wanted, config_source=who)
        for who in (CLAIM, CLASS)
    )
    with pytest.raises(errors.ConfigError, match=f"^{field}: .*only a DeviceClass may set it, not a claim"):
        node.prepare(name, uid="a", **by_claim)
    node.prepare(name, uid="b", **by_class)
    node.unprepare("b")


def test_admin_access_changes_nothing(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-1", uid="a")
    prepared = node.prepare("gpu-1", uid="b", admin_access=True, config=LONG, config_source=CLASS)
    assert prepared.edits.device_nodes
    assert state(node) == PLAIN
    node.unprepare("b")
    assert state(node) == PLAIN


def test_a_gpu_without_the_feature_is_an_error_before_any_change(node: gpu_node.GpuNode) -> None:
    grant = node.grant("gpu-1", config=LONG)
    old = dataclasses.replace(node.hardware.gpus()[1], compute_capability=(6, 1), product_name="Tesla P4")
    author = gpu_driver.GpuDriver(OldGpus(node.choice, old))
    with pytest.raises(errors.ConfigError, match=r"^sharing: Tesla P4 does not support it: .*6\.1, and 7\.0 \(Volta\) is required"):
        author.plan(grant)
    author = gpu_driver.GpuDriver(OldGpus(node.choice, dataclasses.replace(node.hardware.gpus()[1], is_vgpu=True)))
    with pytest.raises(errors.ConfigError, match="hypervisor"):
        author.plan(grant)


class OldGpus(mock_gpus.MockGpus):
    """A machine one of whose GPUs is another."""

    def __init__(self, choice: machines.Choice, other: port.Gpu) -> None:
        super().__init__(choice)
        self.other = other

    def gpu(self, uuid: port.GpuUuid) -> port.Gpu | None:
        return self.other if uuid == self.other.uuid else super().gpu(uuid)


def test_a_reboot_undoes_settings_and_unprepare_leaves_the_new_boot_alone(node: gpu_node.GpuNode) -> None:
    node.prepare("gpu-1", config=LONG)
    machines.reboot(node.choice.directory)
    gpu = node.hardware.gpus()[1].uuid
    node.hardware.set_time_slice(gpu, port.TimeSlice.SHORT)
    node.unprepare()
    assert state(node)[1] is port.TimeSlice.SHORT


@pytest.mark.parametrize("call", ["set_compute_mode", "set_time_slice"])
def test_a_setting_that_fails_is_undone_by_recovery(node: gpu_node.GpuNode, call: str) -> None:
    node.hardware.set_compute_mode(node.hardware.gpus()[1].uuid, port.ComputeMode.PROHIBITED)
    fault_injection.Faults(node.choice.directory).arm(
        fault_injection.Fault(call=call, moment=fault_injection.Moment.AFTER, action=fault_injection.Action.FAIL)
    )
    with pytest.raises(nvml_errors.CallError):
        node.prepare("gpu-1", config=LONG)
    node.restart()
    node.recover()
    assert state(node) == (port.ComputeMode.PROHIBITED, port.TimeSlice.DEFAULT)


@pytest.mark.parametrize(
    "names,wanted,said",
    [
        (("gpu-1-mig-1g10gb-19-6", "gpu-1-mig-1g10gb-19-5"), None, "CUDA sees only one of them"),
        (("gpu-1", "gpu-2"), MPS, "a container reaches only one daemon"),
    ],
)
def test_what_one_container_cannot_use_together_is_warned_of_once(
    node: gpu_node.GpuNode, logged: log_lines.LogLines, names: tuple[str, ...], wanted: gpu_config.GpuConfig | None, said: str
) -> None:
    grants = [node.grant(name, uid="a", request=name[-1]) for name in names]
    grants = [dataclasses.replace(grant, config=wanted or grant.config) for grant in grants]
    planned = [dataclasses.replace(grant, intent=node.driver.plan(grant)) for grant in grants]
    node.journal = {grant.request: gpu_node.JournalEntry(grant=grant) for grant in planned}
    for grant in planned:
        node.driver.prepare(grant)
    (line,) = logged.lines
    assert line["event"] == "claim prepared with a warning"
    assert said in line["warning"]
    assert (line["claim"], line["claim_uid"]) == (str(grants[0].claim), "a")
    node.recover()


@pytest.mark.parametrize(
    "sharing,message",
    [
        ({"strategy": "Never"}, "sharing.strategy: must be one of"),
        ({}, "sharing.strategy: is required"),
        ({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": 3}}, "interval: must be one of"),
        ({"strategy": "TimeSlicing", "mpsConfig": {}}, "sharing.mpsConfig: is for strategy MPS"),
        ({"strategy": "MPS", "timeSlicingConfig": {}}, "sharing.timeSlicingConfig: is for strategy TimeSlicing"),
        ({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 0}}, "must be from 1 to 100"),
        ({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "1Ki"}}, "must be at least 1Mi"),
        ({"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"}}}, "keyed by the device's UUID"),
        ({"strategy": "MPS", "mpsConfig": {"pipe": "/etc"}}, "pipe: is not a known field"),
    ],
)
def test_wrong_parameters_are_refused_by_name(sharing: dict[str, object], message: str) -> None:
    for kind in (("gpu.drakit.dev/v1", "GpuConfig"), ("resource.nvidia.com/v1beta1", "GpuConfig")):
        with pytest.raises(errors.ConfigError, match=message):
            decode({"apiVersion": kind[0], "kind": kind[1], "sharing": sharing})


def test_a_partition_has_no_time_slice_to_set(node: gpu_node.GpuNode) -> None:
    for kind in (("gpu.drakit.dev/v1", "MigConfig"), ("resource.nvidia.com/v1beta1", "MigDeviceConfig")):
        decoded = decode({"apiVersion": kind[0], "kind": kind[1], "sharing": {"strategy": "TimeSlicing"}})
        assert node.driver.accepts_config(node.device("gpu-1-mig-1g10gb-19-6"), decoded)
        assert not node.driver.accepts_config(node.device("gpu-1"), decoded)
        with pytest.raises(errors.ConfigError, match="time slice cannot be changed"):
            decode({"apiVersion": kind[0], "kind": kind[1], "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}})
