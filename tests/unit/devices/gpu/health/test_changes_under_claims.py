"""An admin changes the hardware of prepared claims: it is reported at once, with the reason, and what the admin created is left alone."""

import dataclasses
import pathlib
from typing import cast

import pytest

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors
from drakit.devices.gpu import driver as gpu_driver
from drakit.devices.gpu import identity, port
from drakit.devices.gpu.health import claimed, faults, monitor
from drakit.devices.gpu.mig import instances
from drakit.testing import fake_context
from fakes import gpu_node

Grant = drivers.Grant[object]
PART, WHOLE = "gpu-0-mig-3g20gb-9-0", "gpu-0"
KEY = "gpu.drakit.dev/changed"
POLICY = faults.HealthPolicy(settle=5.0, hold=60.0)


class Watched:
    """A node whose claims are monitored; ``poll`` polls ten seconds later."""

    def __init__(self, directory: pathlib.Path, machine: str) -> None:
        made = instances.MarkerStore(folder=directory / "instances")
        self.node = gpu_node.GpuNode(directory / "gpus", machine, resources=gpu_driver.HostResources(made=made))
        self.hardware = self.node.hardware
        self.context = fake_context.FakeContext(directory / "home")
        self.now = 0.0
        self.watch = monitor.HealthMonitor(
            self.hardware,
            self.context,
            prefix=gpu_driver.NAME,
            policy=POLICY,
            now=lambda: self.now,
            claimed=claimed.ClaimedHardware(self.hardware, self.context, made, whole_beside_partitions=False),
        )

    @property
    def gpu(self) -> port.GpuUuid:
        return self.hardware.plugged()[0].uuid

    def prepare(self, device: str, uid: str = "a") -> gpu_node.Grant:
        self.node.prepare(device, uid=uid)
        grant = self.node.journal[uid].grant
        self.context.put(cast("Grant", grant))
        self.poll()
        assert self.health(device) is contexts.Health.HEALTHY
        return grant

    def poll(self) -> None:
        self.now += 10
        self.watch.poll()

    def health(self, device: str) -> contexts.Health:
        report = self.context.health_of(device)
        return contexts.Health.HEALTHY if report is None else report.health

    def delete_instances(self) -> None:
        for instance in self.hardware.gpu_instances(self.gpu):
            for compute in self.hardware.compute_instances(self.gpu, instance.id):
                self.hardware.destroy_compute_instance(self.gpu, instance.id, compute.id)
            self.hardware.destroy_gpu_instance(self.gpu, instance.id)

    def create(self, profile: int, start: int, size: int) -> port.GpuInstance:
        created = self.hardware.create_gpu_instance(self.gpu, profile, port.Placement(start=start, size=size))
        full = max(self.hardware.compute_instance_profiles(self.gpu, created), key=lambda one: one.slices)
        self.hardware.create_compute_instance(self.gpu, created.id, full.id)
        return created

    def assert_reported(self, device: str, reason: str) -> None:
        report = self.context.health_of(device)
        assert report is not None
        assert report.health is contexts.Health.UNHEALTHY
        assert reason in report.message
        assert [event.reason for _, event in self.context.events if f"{device}: " in event.message and reason in event.message] == [
            "GpuFault"
        ]
        assert KEY in {taint.key for taint in self.context.taints().get(faults.anchor_of(device), ())}


@pytest.fixture
def ampere(tmp_path: pathlib.Path) -> Watched:
    return Watched(tmp_path, "dgx-a100-40gb-2gpu")


@pytest.fixture
def hopper(tmp_path: pathlib.Path) -> Watched:
    return Watched(tmp_path, "dgx-h100")


def test_a_deleted_mig_device_is_reported_and_clears_when_the_claim_ends(ampere: Watched, caplog: pytest.LogCaptureFixture) -> None:
    grant = ampere.prepare(PART)
    ampere.delete_instances()
    ampere.poll()
    ampere.assert_reported(PART, "was deleted")
    assert "GPU fault" in caplog.text
    ampere.context.remove(cast("Grant", grant))
    ampere.node.unprepare("a")
    ampere.poll()
    ampere.poll()
    assert ampere.health(PART) is contexts.Health.HEALTHY
    assert KEY not in {taint.key for taints in ampere.context.taints().values() for taint in taints}


def test_a_deleted_compute_instance_is_reported_and_unprepare_still_deletes_the_rest(ampere: Watched) -> None:
    ampere.prepare(PART)
    (instance,) = ampere.hardware.gpu_instances(ampere.gpu)
    ampere.hardware.destroy_compute_instance(ampere.gpu, instance.id, 0)
    ampere.poll()
    ampere.assert_reported(PART, "the compute instance of")
    ampere.node.unprepare("a")
    assert not ampere.node.instances()


def test_another_device_in_the_same_slot_is_reported_and_kept_by_unprepare(ampere: Watched) -> None:
    ampere.prepare("gpu-0-mig-1g5gb-19-6", uid="b")
    ampere.prepare(PART)
    ampere.delete_instances()
    ampere.poll()
    ampere.create(19, 6, 1)
    ampere.create(9, 0, 4)
    ampere.poll()
    ampere.assert_reported(PART, "another program created")
    ampere.assert_reported("gpu-0-mig-1g5gb-19-6", "another program created")
    with pytest.raises(errors.DeviceBusyError, match="did not create"):
        ampere.node.driver.prepare(ampere.node.journal["a"].grant)
    for uid in ("a", "b"):
        ampere.node.unprepare(uid)
    assert ampere.node.instances() == [(0, 9, 0), (0, 19, 6)], "with equal ids and UUIDs they are still the admin's"


def test_mig_mode_turned_off_is_reported_while_pending_and_after_the_reset(ampere: Watched) -> None:
    ampere.prepare(PART)
    ampere.hardware._change(ampere.gpu, lambda now: (dataclasses.replace(now, pending_mode=False), None))
    ampere.poll()
    ampere.assert_reported(PART, "will be turned off by the next reset")
    ampere.hardware.reset(ampere.gpu)
    ampere.poll()
    ampere.assert_reported(PART, "MIG mode was turned off")


def test_a_whole_gpu_put_into_mig_mode_is_reported(hopper: Watched) -> None:
    hopper.prepare(WHOLE)
    hopper.hardware.set_mig_mode(hopper.gpu, enabled=True)
    hopper.poll()
    hopper.assert_reported(WHOLE, "MIG mode was turned on")
    hopper.hardware.set_mig_mode(hopper.gpu, enabled=False)
    hopper.poll()
    hopper.poll()
    assert hopper.health(WHOLE) is contexts.Health.HEALTHY


def test_a_prohibited_compute_mode_is_reported(hopper: Watched) -> None:
    hopper.prepare(WHOLE)
    hopper.hardware.set_compute_mode(hopper.gpu, port.ComputeMode.PROHIBITED)
    hopper.poll()
    hopper.assert_reported(WHOLE, "the compute mode is Prohibited")


def test_a_claims_own_unprepare_and_repair_are_no_change(ampere: Watched) -> None:
    grant = ampere.prepare(PART)
    ampere.watch._claimed.load()  # type: ignore[union-attr] # the claim is listed, and unprepared right after
    ampere.context.remove(cast("Grant", grant))
    ampere.node.unprepare("a")
    mode = ampere.hardware.mig_mode(ampere.gpu)
    assert not ampere.watch._claimed.changes(ampere.hardware.plugged()[0], mode)  # type: ignore[union-attr]
    ampere.poll()
    assert not ampere.context.events


def test_forms_of_one_gpu_overlap_and_partitions_in_other_slices_do_not(ampere: Watched, hopper: Watched) -> None:
    parts = ampere.node.driver.discover().flat().by_name()
    assert identity.overlaps(parts[PART], parts["gpu-0-mig-1g5gb-19-3"])
    assert not identity.overlaps(parts[PART], parts["gpu-0-mig-1g5gb-19-4"])
    assert not identity.overlaps(parts[PART], parts["gpu-1-mig-1g5gb-19-0"])
    forms = hopper.node.driver.discover().flat().by_name()
    assert identity.overlaps(forms[WHOLE], forms["gpu-0-mig-1g10gb-19-6"])


def test_a_compute_mode_that_a_claim_set_is_reported_and_queued_for_its_restoration(
    hopper: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[object] = []
    monkeypatch.setattr(hopper.watch, "_lost_settings", queued.append)
    grant = hopper.node.grant("gpu-1")
    settings = {"computeMode": port.ComputeMode.DEFAULT.value}
    gpu = hopper.hardware.plugged()[1].uuid
    hopper.hardware.set_mig_mode(gpu, enabled=False)
    intent = identity.Identity(boot=hopper.hardware.boot_id(), gpu=gpu, settings=settings).to_record()
    hopper.context.put(cast("Grant", dataclasses.replace(grant, intent=intent, record={"uuid": gpu})))
    hopper.poll()
    queued.clear()
    hopper.hardware.set_compute_mode(gpu, port.ComputeMode.EXCLUSIVE_PROCESS)
    hopper.poll()
    hopper.assert_reported("gpu-1", "the compute mode was changed from Default to ExclusiveProcess")
    assert queued == [{gpu}]
