"""Machine files and GPU tables are read strictly, and an error says which field of which file is wrong."""

import pathlib

import pytest

from drakit import machines, tables
from drakit.core import errors
from drakit_gpu.mock import machine
from fakes import installed_drivers

BOARD = "{model: a100-sxm4-40gb, pciBusID: '0000:07:00.0', migMode: true}"
GOOD = f"""
name: lab
description: one GPU
gpus:
  evidence: guessed
  driverVersion: 580.95.05
  cudaDriverVersion: "13.0"
  boards: [{BOARD}]
"""
MODEL = """
evidence: measured
productName: NVIDIA T
brand: Tesla
architecture: Turing
computeCapability: [7, 5]
memoryMiB: 15360
profiles: []
"""


def read(text: str) -> machine.GpuMachine:
    return machine.read(machines.parse(text, "lab"), "node-a")


def test_every_machine_and_model_that_ships_can_be_read() -> None:
    assert {"dgx-a100-40gb", "dgx-a100-40gb-2gpu", "dgx-h100", "mixed-16gpu"} <= set(machines.names())
    for name in machines.names("gpus"):
        loaded = machine.load(machines.Choice(name=name, directory=pathlib.Path("/nowhere")))
        assert 1 <= len(loaded.boards) <= 16
        assert machines.load(name).families["nics"]
    used = {
        board.model.product_name for name in machines.names("gpus") for board in machine.read(machines.load(name), "node-a").boards.values()
    }
    assert used == {machine.load_model(name).product_name for name in machine.model_names()}, "every model is in some machine"


def test_a_table_marks_the_reliability_of_its_figures() -> None:
    pcie = machine.load_model("h100-pcie-80gb")
    assert pcie.evidence_of(0) is machine.Evidence.MEASURED
    assert pcie.evidence_of(19) is machine.Evidence.GUESSED
    assert machine.load_model("h100-sxm5-80gb").evidence_of(19) is machine.Evidence.DOCUMENTED


def test_an_unknown_machine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.SettingsError, match=r"no mock machine 'dgx-z9'; known are dgx-a100-40gb, dgx-a100-40gb-2gpu, "):
        machines.load("dgx-z9")


def test_a_machine_may_be_a_file_of_the_user(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(GOOD)
    assert machines.load(str(file)).name == "lab"
    with pytest.raises(errors.SettingsError, match="cannot read"):
        machines.load(str(tmp_path / "none.yaml"))


def test_optional_fields_may_be_left_out() -> None:
    (board,) = read(GOOD).boards.values()
    assert board.gpu.numa_nodes == ()
    assert board.gpu.pcie_root is None


def test_a_board_may_be_near_several_numa_nodes() -> None:
    (board,) = read(GOOD.replace("migMode: true", "migMode: true, numaNode: 2, nearNumaNodes: [3]")).boards.values()
    assert board.gpu.numa_nodes == (2, 3)


@pytest.mark.parametrize(
    "old,new,message",
    [
        ("description: one GPU", "", "lab: description: is missing"),
        ("name: lab", "name: lab\nfpgas: []", "lab: fpgas: unknown field"),
        ("name: lab", "name: lab\nname: lab", "the key name is given twice"),
        ("name: lab", "name: 7", "lab: name: expected text, got int 7"),
        ("name: lab", "name: ''", "lab: name: must not be empty"),
        ("evidence: guessed", "evidence: rumoured", r"gpus.evidence: 'rumoured' is not one of measured, documented, guessed"),
        ("model: a100-sxm4-40gb", "model: z9", r"gpus.boards\[0\].model: no GPU model 'z9'; known are a100-sxm4-40gb, a100-sxm4-80gb, "),
        ("migMode: true", "migMode: yes please", r"gpus.boards\[0\].migMode: expected true or false"),
        ("migMode: true", "migMode: true, numaNode: -1", r"gpus.boards\[0\].numaNode: -1 is below 0"),
        ("migMode: true", "migMode: true, numaNode: true", r"gpus.boards\[0\].numaNode: expected a whole number"),
        ("migMode: true", "migMode: true, colour: red", r"gpus.boards\[0\].colour: unknown field"),
        ("boards: [", "boards: [7, ", r"gpus.boards\[0\]: expected a mapping, got int 7"),
        ("  boards", "  fans: 3\n  boards", "gpus.fans: unknown field"),
        ("gpus:", "gpus: [", "is not YAML"),
    ],
)
def test_a_wrong_field_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(errors.SettingsError, match=message):
        read(GOOD.replace(old, new))


@pytest.mark.parametrize(
    "old,new,message",
    [
        ("[7, 5]", "[7]", "computeCapability: must be"),
        ("[7, 5]", "[7, x]", r"computeCapability\[1\]: 'x' is not a whole number"),
        ("memoryMiB: 15360", "memoryMiB: 0", "memoryMiB: 0 is below 1"),
        ("profiles: []", "profiles: [{name: 1g}]", r"profiles\[0\].enum: is missing"),
    ],
)
def test_a_wrong_field_of_a_model_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(errors.SettingsError, match=message):
        machine.read_model(tables.from_yaml(MODEL.replace(old, new), "t"))


def test_a_model_without_mig_is_accepted() -> None:
    assert not machine.read_model(tables.from_yaml(MODEL, "t")).profiles


def test_an_installed_family_builds_its_driver_for_a_mock_machine(tmp_path: pathlib.Path) -> None:
    choice = machines.Choice(name="dgx-h100", directory=tmp_path)
    built = installed_drivers.build("gpu", node="node-a", machine=choice, driver_name="gpu.example.com")
    assert built.name == "gpu.example.com"
    assert len(built.discover().devices) == 8 * 26
    assert installed_drivers.build("nic", node="node-a", machine=choice).discover().devices


def test_two_processes_that_boot_a_machine_agree_on_the_boot(tmp_path: pathlib.Path) -> None:
    assert machines.boot_id(tmp_path / "m") == machines.boot_id(tmp_path / "m")
    assert machines.reboot(tmp_path / "m") == machines.boot_id(tmp_path / "m")
    assert [file.name for file in (tmp_path / "m").iterdir()] == ["boot_id"]


def test_a_machine_file_sets_the_duration_of_port_methods() -> None:
    assert read(f"{GOOD}  latencyMs: {{create_gpu_instance: 50}}\n").latencies == {"create_gpu_instance": 0.05}
    with pytest.raises(errors.SettingsError, match=r"latencyMs\.make_gpu: unknown field"):
        read(f"{GOOD}  latencyMs: {{make_gpu: 50}}\n")
