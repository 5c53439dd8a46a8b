"""An admin changes the hardware of prepared claims: it is reported at once, with the reason, and what the admin created is left alone."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Unpack, cast

import pytest

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, names, records
from drakit.testing import fake_context
from drakit_gpu import driver as gpu_driver
from drakit_gpu import identity, port, share_policy
from drakit_gpu.health import claimed, faults, monitor, signals
from drakit_gpu.mig import markers
from drakit_gpu.mock import fault_injection
from fakes import gpu_node, log_lines

Grant = drivers.Grant[object]
PART, WHOLE = "gpu-0-mig-3g20gb-9-0", "gpu-0"
SHARED = f"{PART}-shared"
KEY = "gpu.drakit.dev/changed"
POLICY = faults.HealthPolicy(settle=5.0, hold=60.0)


class Watched:
    """A node whose claims are monitored; ``poll`` polls ten seconds later."""

    def __init__(self, directory: pathlib.Path, machine: str) -> None:
        made = markers.MarkerStore(folder=directory / "instances")
        terms = share_policy.SharePolicy(number=4, partitions=True)
        self.node = gpu_node.GpuNode(directory / "gpus", machine, terms=terms, resources=gpu_driver.HostResources(made=made))
        self.hardware = self.node.hardware
        self.step: Callable[[str], None] = lambda _: None
        watched = gpu_node.stepping(self.hardware, self._pass)
        self.context = fake_context.FakeContext(directory / "home")
        self.now = 0.0
        self.watch = monitor.HealthMonitor(
            watched,
            self.context,
            prefix=gpu_driver.NAME,
            policy=POLICY,
            now=lambda: self.now,
            claimed=claimed.ClaimedHardware(watched, self.context, made, whole_beside_partitions=False),
        )

    def _pass(self, name: str) -> None:
        self.step(name)

    @property
    def gpu(self) -> port.GpuUuid:
        return self.hardware.plugged()[0].uuid

    def prepare(self, device: str, uid: str = "a", **fields: Unpack[gpu_node.Fields]) -> gpu_node.Grant:
        grant = self.prepare_unseen(device, uid, **fields)
        self.poll()
        assert self.health(device) is contexts.Health.HEALTHY
        return grant

    def prepare_unseen(self, device: str, uid: str = "a", **fields: Unpack[gpu_node.Fields]) -> gpu_node.Grant:
        self.node.prepare(device, uid=uid, **fields)
        grant = self.node.journal[uid].grant
        self.context.put(cast("Grant", grant))
        return grant

    def unprepare(self, grant: gpu_node.Grant) -> None:
        self.context.remove(cast("Grant", grant))
        self.node.unprepare(grant.claim.uid)

    def once_before(self, call: str, act: Callable[[], object]) -> None:
        """Let others act right before the monitor's next call of this name."""

        def step(name: str) -> None:
            if name == f"before {call}":
                self.step = lambda _: None
                act()

        self.step = step

    def fail(self, call: str, times: int = 1000) -> None:
        before, fails = fault_injection.Moment.BEFORE, fault_injection.Action.FAIL
        faults_of = fault_injection.Faults(self.node.choice.directory)
        faults_of.disarm()
        faults_of.arm(fault_injection.Fault(call=call, moment=before, action=fails, times=times))

    def kinds(self) -> set[str]:
        return {taint.key.removeprefix("gpu.drakit.dev/") for taints in self.context.taints().values() for taint in taints}

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

    def delete_and_share_again(self) -> tuple[gpu_node.Grant, gpu_node.Grant]:
        """An admin deletes a share's MIG device, and another share creates it again under another id, before any poll; return both shares."""
        first = self.prepare(SHARED, "a", share_id=share(1))
        self.delete_instances()
        self.create(19, 6, 1)
        return first, self.prepare_unseen(SHARED, "b", share_id=share(2))

    def assert_reported(self, device: str, reason: str) -> None:
        report = self.context.health_of(device)
        assert report is not None
        assert report.health is contexts.Health.UNHEALTHY
        assert reason in report.message
        assert [event.reason for _, event in self.context.events if f"{device}: " in event.message and reason in event.message] == [
            "GpuFault"
        ]
        assert KEY in {taint.key for taint in self.context.taints().get(faults.anchor_of(device), ())}


def share(number: int) -> names.ShareId:
    return names.ShareId(f"00000000-0000-4000-8000-{number:012d}")


def asks_for(action: signals.RecoveryAction, watched: Watched) -> None:
    watched.hardware._change(watched.gpu, lambda now: (dataclasses.replace(now, recovery=action), None))


@pytest.fixture
def ampere(tmp_path: pathlib.Path) -> Watched:
    return Watched(tmp_path, "dgx-a100-40gb-2gpu")


@pytest.fixture
def hopper(tmp_path: pathlib.Path) -> Watched:
    return Watched(tmp_path, "dgx-h100")


def test_a_deleted_mig_device_is_reported_and_clears_when_the_claim_ends(ampere: Watched, logged: log_lines.LogLines) -> None:
    grant = ampere.prepare(PART)
    ampere.delete_instances()
    ampere.poll()
    ampere.assert_reported(PART, "was deleted")
    assert "GPU fault" in logged.text
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
    assert not ampere.watch._claimed.changes(ampere.hardware.plugged()[0], mode).found  # type: ignore[union-attr]
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
    settings = identity.Settings(compute_mode=port.ComputeMode.DEFAULT)
    gpu = hopper.hardware.plugged()[1].uuid
    hopper.hardware.set_mig_mode(gpu, enabled=False)
    intent = identity.Identity(boot=hopper.hardware.boot_id(), gpu=gpu, recorded_settings=settings.to_record()).to_record()
    hopper.context.put(cast("Grant", dataclasses.replace(grant, intent=intent, record={"uuid": gpu})))
    hopper.poll()
    queued.clear()
    hopper.hardware.set_compute_mode(gpu, port.ComputeMode.EXCLUSIVE_PROCESS)
    hopper.poll()
    hopper.assert_reported("gpu-1", "the compute mode was changed from Default to ExclusiveProcess")
    assert queued == [{gpu}]


def test_a_claim_with_newer_settings_hides_no_other_change(hopper: Watched) -> None:
    hopper.prepare(WHOLE)
    (grant,) = hopper.context.grants()
    newer = records.freeze_record({**grant.intent, "settings": {"computeMode": "X"}})
    hopper.context.put(dataclasses.replace(grant, intent=newer))
    hopper.poll()
    assert not hopper.context.taints()
    hopper.hardware.set_mig_mode(hopper.gpu, enabled=True)
    hopper.poll()
    hopper.assert_reported(WHOLE, "MIG mode was turned on")


@pytest.mark.parametrize("call", ["gpu_instances", "compute_instances", "compute_instance_profiles"])
def test_an_unprepare_during_a_poll_marks_no_gpu_as_lost(ampere: Watched, call: str) -> None:
    grant = ampere.prepare(PART)
    ampere.once_before(call, lambda: ampere.unprepare(grant))
    ampere.poll()
    assert not ampere.context.taints()
    assert not ampere.context.events


def test_an_instance_deleted_during_a_poll_is_reported_at_the_next(ampere: Watched) -> None:
    ampere.prepare(PART)
    ampere.once_before("compute_instances", ampere.delete_instances)
    ampere.poll()
    assert not ampere.context.taints(), "the GPU answers"
    ampere.poll()
    ampere.assert_reported(PART, "was deleted")


@pytest.mark.parametrize("call", ["compute_instances", "mig_mode", "fabric"])
def test_a_failing_call_hides_no_other_fault_of_the_gpu(ampere: Watched, call: str) -> None:
    ampere.prepare(PART)
    ampere.fail(call)
    asks_for(signals.RecoveryAction.RESET, ampere)
    ampere.poll()
    assert ampere.kinds() == {"recovery-action"}


@pytest.mark.parametrize("call", ["compute_instances", "mig_mode"])
def test_other_faults_clear_while_claims_cannot_be_checked(ampere: Watched, call: str) -> None:
    ampere.prepare(PART)
    (instance,) = ampere.hardware.gpu_instances(ampere.gpu)
    ampere.hardware.destroy_compute_instance(ampere.gpu, instance.id, 0)
    asks_for(signals.RecoveryAction.RESET, ampere)
    ampere.poll()
    assert ampere.kinds() == {"recovery-action", "changed"}
    ampere.fail(call)
    asks_for(signals.RecoveryAction.NONE, ampere)
    ampere.poll()
    ampere.poll()
    assert ampere.kinds() == {"changed"}, "what was found is true until it is checked again"


def test_the_marker_of_an_instance_made_again_for_another_share_is_kept(ampere: Watched) -> None:
    _, second = ampere.delete_and_share_again()
    ampere.poll()
    report = ampere.context.health_of(SHARED)
    assert report is not None
    assert "was deleted and created again for another claim; restart the pod of" in report.message
    assert "claim-a" in report.message
    ampere.node.restart().prepare(second)
    ampere.prepare_unseen(SHARED, "c", share_id=share(3))


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("polled", [False, True])
def test_an_instance_made_again_is_deleted_by_the_last_share(ampere: Watched, order: str, *, polled: bool) -> None:
    shares = dict(zip("ab", ampere.delete_and_share_again(), strict=True))
    if polled:
        ampere.poll()
    for uid in order:
        ampere.unprepare(shares[uid])
    assert ampere.node.instances() == [(0, 19, 6)], "only the admin's is left"
