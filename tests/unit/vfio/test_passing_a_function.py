"""A PCI function is bound to vfio-pci with its IOMMU group, and comes back, whatever fails and wherever the process dies."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from drakit import machines, vfio
from drakit.core import errors
from drakit.vfio import mock

GPU, AUDIO, BRIDGE, DISK = "0000:07:00.0", "0000:07:00.1", "0000:00:01.0", "0000:09:00.0"
CARD = (
    vfio.Function(address=BRIDGE, driver="pcieport", group=12, code=0x060400),
    vfio.Function(address=GPU, driver="nvidia", group=12, code=0x030200, vendor="10de"),
    vfio.Function(address=AUDIO, driver="snd_hda_intel", group=12, code=0x040300, vendor="10de"),
)
CHANGES = ("set_override", "unbind", "probe", "reset")


class CrashError(BaseException):
    """The process is gone."""


class SteppingBus:
    """Calls ``step`` before and after each change of the bus."""

    def __init__(self, bus: vfio.Bus, step: Callable[[str], None]) -> None:
        self._bus, self._step = bus, step

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = cast("Callable[..., object]", getattr(self._bus, name))

        def stepped(*arguments: str) -> object:
            self._step(f"before {name} {arguments}")
            answer = call(*arguments)
            self._step(f"after {name} {arguments}")
            return answer

        return stepped if name in CHANGES else call


class Steps:
    """Counts steps and raises an error at one of them."""

    def __init__(self, at: int | None, error: BaseException) -> None:
        self.passed, self._at, self._error = 0, at, error

    def __call__(self, name: str) -> None:
        self.passed, step = self.passed + 1, self.passed
        if step == self._at:
            self._error.add_note(name)
            raise self._error


def stepping(bus: vfio.Bus, steps: Steps) -> vfio.Bus:
    return cast("vfio.Bus", SteppingBus(bus, steps))


def drivers(bus: vfio.Bus) -> dict[str, tuple[str, str]]:
    return {function.address: (function.driver, function.override) for function in bus.functions()}


@pytest.fixture
def bus(tmp_path: pathlib.Path) -> mock.MockBus:
    return mock.MockBus(tmp_path, CARD)


BEFORE = {BRIDGE: ("pcieport", ""), GPU: ("nvidia", ""), AUDIO: ("snd_hda_intel", "")}
BOUND = {BRIDGE: ("pcieport", ""), GPU: ("vfio-pci", "vfio-pci"), AUDIO: ("vfio-pci", "vfio-pci")}


def test_the_whole_card_is_bound_and_comes_back_after_a_reset(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    assert drivers(bus) == BEFORE, "a plan changes nothing"
    for _ in range(2):
        vfio.bind(bus, planned)
        assert drivers(bus) == BOUND
    assert not bus.resets
    for _ in range(2):
        vfio.release(bus, planned)
        assert drivers(bus) == BEFORE
    assert sorted(bus.resets) == [GPU, AUDIO]


def test_a_bus_needs_only_the_methods_that_a_call_uses() -> None:
    class Empty:
        def function(self, address: str) -> None:
            """Find nothing at any address."""

    refused = vfio.refusal(cast("vfio.Bus", Empty()), GPU)
    assert refused is not None
    assert refused.reason == "is not in this machine"


def test_a_plan_survives_the_journal(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    assert vfio.Plan.from_record(planned.to_record()) == planned
    assert vfio.Plan.from_record({"mark": "of a share"}) is None


def test_a_machine_gets_the_group_or_the_device_of_iommufd(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    vfio.bind(bus, planned)
    assert [node.path for node in vfio.nodes(bus, planned)] == ["/dev/vfio/vfio", "/dev/vfio/12"]
    assert [node.path for node in vfio.nodes(bus, planned, iommufd=True)] == ["/dev/iommu", "/dev/vfio/devices/vfio12"]


def test_a_kernel_without_iommufd_is_named_with_the_setting(tmp_path: pathlib.Path) -> None:
    bus = mock.MockBus(tmp_path, CARD, has_iommufd=False)
    with pytest.raises(errors.HardwareError, match=r"no /dev/iommu .* set vfio_nodes to group"):
        vfio.nodes(bus, vfio.plan(bus, GPU), iommufd=True)


OTHER_CARD = vfio.Function(address=DISK, driver="nvme", group=12, code=0x010802)


@pytest.mark.parametrize(
    "changes,functions,text",
    [
        ({}, (dataclasses.replace(CARD[1], group=None),), "has no IOMMU group; turn on the IOMMU in the machine's firmware"),
        ({"unloaded": ["vfio-pci"]}, CARD, "needs the driver vfio-pci, which is not loaded; run modprobe vfio-pci"),
        ({"in_use": {GPU: ["has the interface eth0, which has an address of the host"]}}, CARD, "has an address of the host; end this use"),
        ({"in_use": {GPU: ["has the disk nvme0n1"]}}, CARD, "has the disk nvme0n1; end this use"),
        ({"with_devices": [AUDIO]}, CARD, f"shares IOMMU group 12 with {AUDIO}, which the host uses with the driver snd_hda_intel; move"),
        ({}, (*CARD, OTHER_CARD), f"shares IOMMU group 12 with {DISK}, which the host uses with the driver nvme; move the card to a slot"),
        ({}, (dataclasses.replace(CARD[1], code=0x060400),), "is a bridge"),
    ],
    ids=["no group", "no driver", "address", "disk", "second interface", "other card", "bridge"],
)
def test_what_must_stay_with_the_host_is_refused_with_a_fix(
    tmp_path: pathlib.Path, changes: dict[str, object], functions: tuple[vfio.Function, ...], text: str
) -> None:
    bus = mock.MockBus(tmp_path, functions, **changes)  # type: ignore[arg-type]
    before = drivers(bus)
    with pytest.raises(errors.DeviceBusyError) as refused:
        vfio.plan(bus, GPU)
    assert str(refused.value).startswith(f"{GPU} ")
    assert text in str(refused.value)
    assert drivers(bus) == before


def test_a_bridge_of_the_same_card_with_a_driver_is_never_taken_along(tmp_path: pathlib.Path) -> None:
    bridge = vfio.Function(address="0000:07:00.7", driver="lpc_ich", group=12, code=0x060100)
    with pytest.raises(errors.DeviceBusyError, match="with the driver lpc_ich"):
        vfio.plan(mock.MockBus(tmp_path, (*CARD, bridge)), GPU)


def test_a_function_that_an_admin_bound_to_vfio_pci_is_refused_and_stays(bus: mock.MockBus) -> None:
    bus.set_override(GPU, "vfio-pci")
    bus.unbind(GPU)
    bus.probe(GPU)
    before = drivers(bus)
    with pytest.raises(errors.DeviceBusyError, match="is bound to vfio-pci already"):
        vfio.plan(bus, GPU)
    assert drivers(bus) == before


def test_a_function_that_came_into_use_since_the_plan_is_not_taken(bus: mock.MockBus, tmp_path: pathlib.Path) -> None:
    planned = vfio.plan(bus, GPU)
    used = mock.MockBus(tmp_path, CARD, in_use={GPU: ["has the disk sda"]})
    with pytest.raises(errors.DeviceBusyError, match="has the disk sda"):
        vfio.bind(used, planned)
    assert drivers(used) == BEFORE


def test_another_driver_since_the_plan_is_not_unbound(bus: mock.MockBus) -> None:
    planned = dataclasses.replace(vfio.plan(bus, GPU), members=(vfio.Member(address=GPU, driver="nouveau"),))
    with pytest.raises(errors.DeviceBusyError, match="was bound to nvidia by another program"):
        vfio.bind(bus, planned)
    assert drivers(bus) == BEFORE


def test_an_open_group_is_busy_and_keeps_its_drivers_until_it_is_closed(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    vfio.bind(bus, planned)
    bus.open_group(12)
    with pytest.raises(errors.DeviceBusyError, match=r"a process has /dev/vfio/12 open; end the virtual machine"):
        vfio.release(bus, planned)
    assert drivers(bus) == BOUND
    bus.open_group(12, is_open=False)
    vfio.release(bus, planned)
    assert drivers(bus) == BEFORE


def test_a_reboot_leaves_nothing_to_restore_and_nothing_to_bind(bus: mock.MockBus, tmp_path: pathlib.Path) -> None:
    planned = vfio.plan(bus, GPU)
    vfio.bind(bus, planned)
    machines.reboot(tmp_path)
    bus.set_override(GPU, "vfio-pci")
    vfio.release(bus, planned)
    assert drivers(bus)[GPU] == ("nvidia", "vfio-pci"), "what an admin set in the new boot stays"
    with pytest.raises(errors.DeviceGoneError, match="earlier boot"):
        vfio.bind(bus, planned)


def test_a_function_whose_former_driver_is_gone_is_the_hosts_without_one(bus: mock.MockBus, tmp_path: pathlib.Path) -> None:
    planned = vfio.plan(bus, GPU)
    vfio.bind(bus, planned)
    without = mock.MockBus(tmp_path, CARD, unloaded=["nvidia"])
    vfio.release(without, planned)
    assert drivers(without) == BEFORE | {GPU: ("", "")}


def test_a_function_that_left_the_machine_does_not_keep_the_others(bus: mock.MockBus, tmp_path: pathlib.Path) -> None:
    planned = vfio.plan(bus, GPU)
    vfio.bind(bus, planned)
    rest = mock.MockBus(tmp_path, [function for function in CARD if function.address != GPU])
    vfio.release(rest, planned)
    assert drivers(rest)[AUDIO] == ("snd_hda_intel", "")
    with pytest.raises(errors.DeviceGoneError, match="is not in this machine"):
        vfio.bind(rest, planned)


def test_after_a_lost_journal_the_kernel_chooses_the_former_drivers(bus: mock.MockBus) -> None:
    vfio.bind(bus, vfio.plan(bus, GPU))
    recalled = vfio.recall(bus, GPU)
    assert vfio.is_bound(bus, recalled)
    vfio.release(bus, recalled)
    assert drivers(bus) == BEFORE


def test_recall_of_an_untouched_function_undoes_nothing(bus: mock.MockBus) -> None:
    vfio.release(bus, vfio.recall(bus, GPU))
    assert drivers(bus) == BEFORE
    assert not bus.resets


def test_a_claim_of_a_lost_journal_whose_function_came_back_is_bound_again(bus: mock.MockBus) -> None:
    recalled = vfio.recall(bus, GPU)
    assert not vfio.is_bound(bus, recalled)
    vfio.bind(bus, recalled)
    assert drivers(bus) == BOUND
    vfio.release(bus, recalled)
    assert drivers(bus) == BEFORE


def each_step(work: Callable[[Steps], None], error: Callable[[], BaseException]) -> Iterator[int]:
    """Run the work with an error at each of its steps; yield after each."""
    for step in range(1000):
        steps = Steps(step, error())
        try:
            work(steps)
        except (CrashError, errors.DrakitError):
            yield step
        else:
            assert step > 10
            return


def test_an_error_at_any_step_of_bind_restores_the_former_drivers(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    for _ in each_step(
        lambda steps: vfio.bind(stepping(bus, steps), planned), lambda: errors.HardwareError("drivers_probe", "made to fail")
    ):
        assert drivers(bus) == BEFORE
    assert drivers(bus) == BOUND


def test_an_error_at_any_step_of_release_is_reported_and_the_next_try_ends_it(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    vfio.bind(bus, planned)
    for _ in each_step(lambda steps: vfio.release(stepping(bus, steps), planned), lambda: errors.HardwareError("reset", "made to fail")):
        vfio.release(bus, planned)
        assert drivers(bus) == BEFORE
        vfio.bind(bus, planned)
    assert drivers(bus) == BEFORE


@pytest.mark.parametrize("act", ["bind", "release"])
def test_a_death_at_any_step_is_undone_by_the_next_process(bus: mock.MockBus, act: str) -> None:
    planned = vfio.plan(bus, GPU)
    if act == "release":
        vfio.bind(bus, planned)
    for _ in each_step(lambda steps: getattr(vfio, act)(stepping(bus, steps), planned), CrashError):
        vfio.release(bus, planned)
        assert drivers(bus) == BEFORE
        if act == "release":
            vfio.bind(bus, planned)


def test_a_death_at_any_step_after_which_the_journal_is_lost_is_undone(bus: mock.MockBus) -> None:
    planned = vfio.plan(bus, GPU)
    for _ in each_step(lambda steps: vfio.bind(stepping(bus, steps), planned), CrashError):
        for address in (GPU, AUDIO):
            vfio.release(bus, vfio.recall(bus, address))
        assert {address for address, (driver, override) in drivers(bus).items() if "vfio-pci" in {driver, override}} == set()
        assert drivers(bus) == BEFORE
