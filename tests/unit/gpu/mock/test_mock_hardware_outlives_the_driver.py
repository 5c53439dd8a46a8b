"""Mock GPUs are a machine of their own: real processes come and go, are killed by real signals, and what they made stays until a reboot."""

import contextlib
import dataclasses
import json
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from drakit import machines
from drakit.core import errors
from drakit_gpu import nvml_errors, port
from drakit_gpu.mock import fault_injection, mock_gpus
from fakes import forked_cli, gpu_node, waits

MACHINE = "dgx-a100-40gb-2gpu"
PROFILE, SLICE = 19, port.Placement(start=6, size=1)
Start: TypeAlias = Callable[..., forked_cli.Started]
MAKE_ONE = """
import pathlib, sys
from drakit import machines
from drakit_gpu import port
from drakit_gpu.mock import mock_gpus
hardware = mock_gpus.MockGpus(machines.Choice(name="dgx-a100-40gb-2gpu", directory=pathlib.Path(sys.argv[1]), owner="node-a"))
for start in map(int, sys.argv[2:]):
    gpu = hardware.gpus()[start // 7].uuid
    made = hardware.create_gpu_instance(gpu, 19, port.Placement(start=start % 7, size=1))
    print(made.id, flush=True)
"""


@pytest.fixture
def choice(tmp_path: pathlib.Path) -> machines.Choice:
    return machines.Choice(name=MACHINE, directory=tmp_path / "machine", owner="node-a")


@pytest.fixture
def output(tmp_path: pathlib.Path) -> pathlib.Path:
    """What all processes print."""
    return tmp_path / "output"


@pytest.fixture
def start(commands: forked_cli.Commands, choice: machines.Choice, output: pathlib.Path) -> Iterator[Start]:
    """Start a process that makes an instance at each start; those that still run are killed at the end."""
    with output.open("ab") as written, contextlib.ExitStack() as ending:

        def begin(*starts: int) -> forked_cli.Started:
            running = commands.code(MAKE_ONE, choice.directory, *starts, out=written.fileno())
            ending.callback(running.send_signal, signal.SIGKILL)
            return running

        yield begin


def until_stalled(injector: fault_injection.Faults) -> fault_injection.Stall:
    """The stall of the other process: the one thing here that has to be waited for, because a process cannot be asked."""
    deadline = time.monotonic() + waits.SECONDS
    while time.monotonic() < deadline:
        for stall in injector.stalled():
            return stall
        time.sleep(0.01)
    raise AssertionError("nobody stalled")


def starts(choice: machines.Choice) -> list[int]:
    hardware = mock_gpus.MockGpus(choice)
    return [instance.placement.start for gpu in hardware.gpus() for instance in hardware.gpu_instances(gpu.uuid)]


@pytest.mark.parametrize("moment,left", [(fault_injection.Moment.BEFORE, []), (fault_injection.Moment.AFTER, [6])])
def test_a_driver_killed_in_a_call_leaves_the_effect_the_call_had(
    choice: machines.Choice, start: Start, moment: fault_injection.Moment, left: list[int]
) -> None:
    injector = fault_injection.Faults(choice.directory)
    injector.arm(fault_injection.Fault(call="create_gpu_instance", moment=moment, action=fault_injection.Action.HANG))
    victim = start(6)
    stall = until_stalled(injector)
    assert (stall.pid, stall.call, stall.moment) == (victim.pid, "create_gpu_instance", moment)
    victim.kill()
    assert victim.wait(waits.SECONDS) == -signal.SIGKILL
    assert starts(choice) == left
    assert not injector.stalled()
    mock_gpus.MockGpus(choice).create_gpu_instance(mock_gpus.MockGpus(choice).gpus()[1].uuid, PROFILE, SLICE)


def test_a_hanging_call_continues_on_release_and_blocks_no_other(choice: machines.Choice, start: Start) -> None:
    injector = fault_injection.Faults(choice.directory)
    injector.arm(fault_injection.Fault(call="create_gpu_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.HANG))
    slow = start(6)
    until_stalled(injector)
    assert start(5).wait(waits.SECONDS) == 0
    assert slow.poll() is None
    injector.release()
    assert slow.wait(waits.SECONDS) == 0
    assert starts(choice) == [5, 6]


def test_a_machine_can_kill_the_process_that_calls_it_between_effect_and_answer(
    choice: machines.Choice, start: Start, output: pathlib.Path
) -> None:
    injector = fault_injection.Faults(choice.directory)
    injector.arm(
        fault_injection.Fault(call="create_gpu_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.DIE, skip=1)
    )
    assert start(6, 5, 4).wait(waits.SECONDS) == -signal.SIGKILL
    assert output.read_text() == "1\n", "the first call was answered, the second was not, the third was not made"
    assert starts(choice) == [5, 6]
    assert start(4).wait(waits.SECONDS) == 0


def test_two_processes_change_one_machine_in_turn(choice: machines.Choice, start: Start) -> None:
    first, second = start(*range(7)), start(*range(7, 14))
    assert (first.wait(waits.SECONDS), second.wait(waits.SECONDS)) == (0, 0)
    assert sorted(starts(choice)) == sorted([*range(7), *range(7)])


def test_two_threads_cannot_have_the_same_placement(choice: machines.Choice) -> None:
    gpu = mock_gpus.MockGpus(choice).gpus()[0].uuid
    outcomes: list[nvml_errors.Code | None] = []

    def create() -> None:
        try:
            mock_gpus.MockGpus(choice).create_gpu_instance(gpu, PROFILE, SLICE)
        except nvml_errors.CallError as error:
            outcomes.append(error.code)
        else:
            outcomes.append(None)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(None) == 1
    assert outcomes.count(nvml_errors.Code.INSUFFICIENT_RESOURCES) == 7


def test_a_reboot_forgets_instances_keeps_mig_mode_and_changes_the_boot_id(choice: machines.Choice) -> None:
    hardware = mock_gpus.MockGpus(choice)
    first, second = (gpu.uuid for gpu in hardware.gpus())
    hardware.create_gpu_instance(first, PROFILE, SLICE)
    hardware.set_mig_mode(second, enabled=False)
    before = hardware.boot_id()
    assert machines.reboot(choice.directory) == hardware.boot_id() != before
    assert not starts(choice)
    assert mock_gpus.MockGpus(choice).mig_mode(second) == port.MigMode(current=False, pending=False)


def test_an_injected_error_occurs_at_its_call_as_often_as_configured(choice: machines.Choice) -> None:
    hardware = mock_gpus.MockGpus(choice)
    injector = fault_injection.Faults(choice.directory)
    injector.arm(
        fault_injection.Fault(
            call="gpus",
            moment=fault_injection.Moment.BEFORE,
            action=fault_injection.Action.FAIL,
            code=nvml_errors.Code.GPU_IS_LOST,
            skip=1,
            times=2,
        )
    )
    answers: list[object] = []
    for _ in range(4):
        try:
            answers.append(len(hardware.gpus()))
        except nvml_errors.CallError as error:
            answers.append(error.code)
    assert answers == [2, nvml_errors.Code.GPU_IS_LOST, nvml_errors.Code.GPU_IS_LOST, 2]


def test_a_fault_at_an_unknown_call_is_refused(choice: machines.Choice) -> None:
    with pytest.raises(errors.SettingsError, match="no call 'explode'"):
        fault_injection.Fault(call="explode", moment=fault_injection.Moment.BEFORE, action=fault_injection.Action.DIE)


def test_a_fault_file_written_by_hand_is_read_strictly(choice: machines.Choice) -> None:
    hardware = mock_gpus.MockGpus(choice)
    file = choice.directory / "gpu-faults.json"
    file.write_text('{"faults": [{"call": "gpus", "moment": "before", "action": "fail"}]}')
    with pytest.raises(nvml_errors.CallError, match="UNKNOWN"):
        hardware.gpus()
    file.write_text('{"faults": [{"call": "gpus", "moment": "during", "action": "fail"}]}')
    with pytest.raises(errors.SettingsError, match=r'faults\[0\].moment: must be one of "before", "after", not "during"'):
        hardware.gpus()


def test_a_fault_file_may_be_yaml(choice: machines.Choice) -> None:
    hardware = mock_gpus.MockGpus(choice)
    (choice.directory / "gpu-faults.json").write_text("faults:\n- {call: gpus, moment: before, action: fail}\n")
    with pytest.raises(nvml_errors.CallError, match="UNKNOWN"):
        hardware.gpus()


@pytest.mark.parametrize(
    "field, message",
    [
        ('"times": 0', r"fault\.times: 0 is below 1"),
        ('"skip": -1', r"fault\.skip: -1 is below 0"),
        ('"code": ["x"]', r"faults\[0\]\.code: \['x'\] is no return code"),
    ],
)
def test_a_fault_that_could_not_act_as_written_is_refused(choice: machines.Choice, field: str, message: str) -> None:
    hardware = mock_gpus.MockGpus(choice)
    file = choice.directory / "gpu-faults.json"
    file.write_text(f'{{"faults": [{{"call": "gpus", "moment": "before", "action": "fail", {field}}}]}}')
    with pytest.raises(errors.SettingsError, match=message):
        hardware.gpus()


def test_gpus_of_two_nodes_have_different_uuids(tmp_path: pathlib.Path) -> None:
    uuids = [
        {gpu.uuid for gpu in mock_gpus.MockGpus(machines.Choice(name=MACHINE, directory=tmp_path / owner, owner=owner)).gpus()}
        for owner in ("node-a", "node-b")
    ]
    assert not uuids[0] & uuids[1]


def test_a_directory_of_another_machine_is_refused(choice: machines.Choice, tmp_path: pathlib.Path) -> None:
    hardware = mock_gpus.MockGpus(choice)
    hardware.set_mig_mode(hardware.gpus()[0].uuid, enabled=False)
    for other in ({"name": "dgx-h100", "owner": "node-a"}, {"name": MACHINE, "owner": "node-b"}):
        with pytest.raises(errors.SettingsError, match="use another directory"):
            mock_gpus.MockGpus(machines.Choice(directory=choice.directory, **other))


def test_a_state_of_an_earlier_version_is_read(choice: machines.Choice) -> None:
    first, second = (gpu.uuid for gpu in mock_gpus.MockGpus(choice).gpus())
    instance = {"id": 1, "profile": 19, "start": 6, "size": 1, "computes": [{"id": 0, "profile": 0}]}
    clients = [{"pid": 7, "instance": 1}, {"pid": 8}]
    rows = [
        {"uuid": first, "migMode": True, "instances": [instance], "pendingMode": False, "clients": clients},
        {"uuid": second, "migMode": False, "instances": [], "timeSlice": "Long", "lost": True},
    ]
    boot = machines.boot_id(choice.directory)
    document = {"version": 1, "machine": MACHINE, "owner": "node-a", "bootID": boot, "gpus": rows}
    (choice.directory / "gpus.json").write_text(json.dumps(document))
    hardware = mock_gpus.MockGpus(choice)
    assert [gpu.uuid for gpu in hardware.gpus()] == [first]
    assert hardware.mig_mode(first) == port.MigMode(current=True, pending=False)
    assert (hardware.running_processes(first), hardware.running_processes(first, 1)) == ((7, 8), (7,))
    assert [compute.profile_id for compute in hardware.compute_instances(first, 1)] == [0]
    hardware.attach(first, 9)
    assert hardware.mig_mode(first) == port.MigMode(current=True, pending=False)


def test_earlier_versions_can_read_the_state(choice: machines.Choice) -> None:
    """They require every list, and read the mode after the reset."""
    hardware = mock_gpus.MockGpus(choice)
    first = hardware.gpus()[0].uuid
    hardware.attach(first, 7)
    with pytest.raises(nvml_errors.CallError, match="IN_USE"):
        hardware.set_mig_mode(first, enabled=False)

    def written() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads((choice.directory / "gpus.json").read_text())["gpus"]
        return rows

    assert [(row["instances"], row.get("pendingMode")) for row in written()] == [([], False), ([], None)]
    assert mock_gpus.MockGpus(choice).mig_mode(first) == port.MigMode(current=True, pending=False)
    hardware.set_mig_mode(first, enabled=True)
    hardware.create_gpu_instance(first, PROFILE, SLICE)
    assert "pendingMode" not in written()[0]
    assert written()[0]["instances"] == [{"id": 1, "profile": PROFILE, "start": 6, "size": 1, "computes": []}]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "machine": "x"}'])
def test_a_damaged_state_is_reported_and_never_overwritten(choice: machines.Choice, text: str) -> None:
    hardware = mock_gpus.MockGpus(choice)
    gpu = hardware.gpus()[0].uuid
    file = choice.directory / "gpus.json"
    file.write_text(text)
    with pytest.raises(errors.SettingsError, match=r"gpus\.json"):
        hardware.create_gpu_instance(gpu, PROFILE, SLICE)
    assert file.read_text() == text


def test_a_state_that_cannot_be_written_is_a_failed_call_and_changes_nothing(choice: machines.Choice) -> None:
    hardware = mock_gpus.MockGpus(choice)
    (choice.directory / "gpus.json.new").mkdir()
    with pytest.raises(nvml_errors.CallError, match=r"UNKNOWN .*Is a directory"):
        hardware.create_gpu_instance(hardware.gpus()[0].uuid, PROFILE, SLICE)
    assert not starts(choice)


def test_the_state_is_for_its_owner_alone(choice: machines.Choice) -> None:
    hardware = mock_gpus.MockGpus(choice)
    hardware.create_gpu_instance(hardware.gpus()[0].uuid, PROFILE, SLICE)
    assert choice.directory.stat().st_mode & 0o777 == 0o700
    assert (choice.directory / "gpus.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((choice.directory / "gpus.json").read_text())["machine"] == MACHINE


def test_a_driver_killed_while_it_prepares_is_recovered_by_the_next(choice: machines.Choice, start: Start) -> None:
    """The journal holds the intent, the machine holds a GPU instance without a compute instance, the process is gone."""
    node = gpu_node.GpuNode(choice.directory)
    node.prepare("gpu-0-mig-1g5gb-19-6")
    grant = node.journal["a"].grant
    node.driver.unprepare(grant)
    node.journal["a"] = gpu_node.JournalEntry(grant=dataclasses.replace(grant, record={}))
    fault_injection.Faults(choice.directory).arm(
        fault_injection.Fault(call="create_gpu_instance", moment=fault_injection.Moment.AFTER, action=fault_injection.Action.DIE)
    )
    assert start(6).wait(waits.SECONDS) == -signal.SIGKILL
    assert node.instances() == [(0, 19, 6)]
    node.restart()
    node.recover()
    assert not node.instances()
