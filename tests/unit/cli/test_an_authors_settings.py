"""An author's own settings, sub-commands and checks: they come from file, environment and flags, and are read as strictly as drakit's own."""

import dataclasses
import enum
import json
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import pytest
import typer

import drakit
from drakit import families
from drakit.cli import driver_program
from drakit.settings import schema
from fakes import command_line


class Wear(enum.Enum):
    """How worn a disk may be."""

    LOW = "low"
    HIGH = "high"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SsdSettings:
    """Settings of a made-up driver."""

    device: str = "nvme0"
    """Device to offer."""

    iops: int = 1000
    """Operations a second to share out."""

    names: tuple[str, ...] = ()
    """Names of namespaces."""

    mode: Literal["strict", "loose"] = "strict"

    wear: Wear = Wear.LOW


class SsdDriver(drakit.Driver[drakit.NoConfig], drakit.Diagnosable):
    name = "ssd.example.com"

    def __init__(self, settings: SsdSettings) -> None:
        self.settings = settings

    def discover(self) -> drakit.Inventory:
        capacity = {"iops": drakit.Capacity(value=drakit.Quantity.of(self.settings.iops))}
        taints = (drakit.Taint(key="ssd.example.com/worn"),)
        devices = [drakit.Device(name=self.settings.device, capacity=capacity, taints=taints)]
        return drakit.Inventory.of([*devices, *(drakit.Device(name=name) for name in self.settings.names)])

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        return drakit.Prepared(edits=drakit.Edits(env={"SSD": grant.device.name}))

    def diagnose(self) -> Iterable[drakit.Finding]:
        yield drakit.Finding(
            topic="wear", subject=self.settings.device, verdict=drakit.Verdict.FAILED, message="97% worn", fix="replace the disk"
        )
        if self.settings.device == "silent":
            raise drakit.HardwareError("readTemperature", "the disk does not answer")


def wear(settings: SsdSettings, top: Annotated[int, typer.Option(help="How many.")] = 1) -> None:
    """Show how worn the disks are."""
    typer.echo(f"{settings.device}: {top}")


Program = Callable[..., command_line.Result]


@pytest.fixture
def program(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "ssd")])
    extras = driver_program.Extras(settings=SsdSettings, commands={"wear": wear})

    def run(*arguments: str) -> command_line.Result:
        capsys.readouterr()
        try:
            driver_program.serve(SsdDriver, [*arguments, "--node", "node-1", "--folder", str(tmp_path / "node")], extras)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        written = capsys.readouterr()
        return command_line.Result(status=status, out=written.out, err=written.err)

    return run


def test_settings_come_from_file_environment_and_flags_and_later_ones_win(
    program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ssd.yaml"
    file.write_text("ssd: {device: nvme1, iops: 2000, names: [a, b]}\nlog: {level: error}\n")
    assert "nvme0" in program("show").out
    shown = program("show", "--config", str(file)).out
    assert "nvme1" in shown
    assert "2k" in shown
    monkeypatch.setenv("SSD_IOPS", "3000")
    monkeypatch.setenv("SSD_NAMES", "[c]")
    shown = program("show", "--config", str(file), "--set", "ssd.device=nvme2").out
    assert "nvme2" in shown
    assert "3k" in shown
    assert "\nc" in shown


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--set", "ssd.devise=nvme1"), "ssd.devise: is not a setting; did you mean ssd.device?"),
        (("--set", "ssd.mode=lax"), "ssd.mode: 'lax' is not one of strict, loose (set by a flag)"),
        (("--set", "ssd.iops=many"), "ssd.iops: 'many' is not a whole number (set by a flag)"),
        (("--set", "ssd.wear=dead"), "ssd.wear: 'dead' is not one of low, high (set by a flag)"),
        (("--set", "gpu.enabled=false"), "gpu: is not a setting"),
        (("--set", "nic.reserve=1G"), "nic: is not a setting"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(program: Program, arguments: tuple[str, ...], message: str) -> None:
    answer = program("slices", *arguments)
    assert answer.status == 2
    assert message in answer.err
    assert "election." not in answer.err


def test_an_error_of_a_value_names_its_source(program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ssd.yaml"
    file.write_text("ssd: {wear: dead}\n")
    assert f"ssd.wear: 'dead' is not one of low, high (set in {file})" in program("slices", "--config", str(file)).err
    monkeypatch.setenv("SSD_WEAR", "gone")
    wrong = program("slices", "--config", str(file)).err
    assert "ssd.wear: 'gone' is not one of low, high (set by SSD_WEAR in the environment)" in wrong
    assert "'lost' is not one of low, high (set by a flag)" in program("slices", "--config", str(file), "--set", "ssd.wear=lost").err


def test_an_unknown_variable_of_the_drivers_own_prefix_is_refused(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSD_DEVISE", "nvme1")
    answer = program("slices")
    assert (
        answer.status,
        "SSD_DEVISE: is not a setting, and every SSD_ variable is read as one; did you mean SSD_DEVICE?" in answer.err,
    ) == (2, True)


class OpeningDriver(SsdDriver):
    """Opens its hardware as soon as it is made."""

    name = "opening.example.com"

    def __init__(self, settings: SsdSettings) -> None:
        if settings.device == "nvme0":
            raise drakit.HardwareError("open", "nvme0 is not there")
        super().__init__(settings)


def test_a_driver_class_is_constructed_only_with_the_real_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["opening", "slices", "--set", "opening.device=nvme1", "-o", "json"])
    with pytest.raises(SystemExit) as ended:
        drakit.run(OpeningDriver, settings=SsdSettings)
    assert ended.value.code in {0, None}
    assert "nvme1" in capsys.readouterr().out


def test_a_sub_command_receives_the_settings(program: Program) -> None:
    assert program("wear", "--top", "3", "--set", "ssd.device=nvme7").out == "nvme7: 3\n"


def test_doctor_runs_the_drivers_own_checks_and_none_of_other_drivers(program: Program) -> None:
    answer = program("doctor", "--no-api")
    assert answer.status == 1
    assert "97% worn" in answer.out
    assert "fix: replace the disk" in answer.out
    assert "nvml" not in answer.out.lower()


def test_a_failing_check_of_a_driver_hides_neither_devices_nor_other_findings(program: Program) -> None:
    answer = program("doctor", "--no-api", "--set", "ssd.device=silent", "-o", "json")
    found = {one["message"]: one["verdict"] for one in json.loads(answer.out)}
    assert found["97% worn"] == "failed"
    assert found["the driver's own checks stopped: HardwareError: readTemperature: the disk does not answer"] == "unknown"
    assert found["taints on 1 of 1 device: silent"] == "warning"


def test_show_has_the_capacity_and_the_taints_of_any_driver(program: Program) -> None:
    header, *_ = (line for line in program("show").out.splitlines() if line.startswith("DEVICE"))
    assert header.split() == ["DEVICE", "IOPS", "TAINTS"]


@dataclasses.dataclass
class Changing:
    """Settings that can be changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demanding:
    """Settings without a default."""

    device: str


@pytest.mark.parametrize(
    "group, settings, message",
    [
        ("ssd", Changing, "Changing is no frozen dataclass"),
        ("ssd", Demanding, "every field of Demanding needs a default"),
        ("node", SsdSettings, "cannot have the group 'node'"),
        ("a-b", SsdSettings, "cannot have the group 'a-b'"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_at_the_start(group: str, settings: type, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        schema.of_driver(families.DriverFamily(SsdDriver, options=settings, name=group))


def test_a_sub_command_cannot_replace_one_of_drakits() -> None:
    with pytest.raises(TypeError, match="commands has 'run'"):
        driver_program.serve(SsdDriver, ["run"], driver_program.Extras(settings=SsdSettings, commands={"run": wear}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelaySettings:
    """Settings of a driver whose name is one of them."""

    driver_name: str = "relay.example.com"


class RelayDriver(drakit.Driver[drakit.NoConfig]):
    """Offers one device that is named after the node; the class has no name of its own."""

    def __init__(self, settings: RelaySettings) -> None:
        self.name = settings.driver_name

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory.of([drakit.Device(name=f"relay-of-{self.node_name}")])

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        return drakit.Prepared(edits=drakit.Edits(env={"RELAY": grant.device.name}))


def test_a_setting_gives_the_drivers_name_and_discover_receives_the_node(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "relay")])

    def run(*arguments: str) -> command_line.Result:
        options = [*arguments, "--node", "node-7", "--folder", str(tmp_path / "node")]
        with pytest.raises(SystemExit) as ended:
            driver_program.serve(RelayDriver, options, driver_program.Extras(settings=RelaySettings))
        written = capsys.readouterr()
        return command_line.Result(status=int(ended.value.code or 0), out=written.out, err=written.err)

    assert "driver: relay.example.com" in run("slices", "-o", "yaml").out
    renamed = ("--set", "relay.driver_name=relay.acme.example")
    assert "driver: relay.acme.example" in run("slices", "-o", "yaml", *renamed).out
    assert run("show", *renamed).out.startswith("== relay.acme.example on node-7")
    assert "relay-of-node-7" in run("show", *renamed).out
    refused = run("slices", "--set", "relay.driver_name=Relay")
    assert (refused.status, refused.out) == (1, "")
    assert "RelayDriver.name: 'Relay' is not a driver name" in refused.err


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwitchedSettings:
    """Settings of a driver whose own switch has the name that drakit's families use."""

    enabled: bool = False


class SwitchedDriver(SsdDriver):
    """A driver with a setting named ``enabled``."""

    def __init__(self, settings: SwitchedSettings) -> None:
        super().__init__(SsdSettings())
        self.switched_on = settings.enabled


def test_a_setting_named_enabled_is_the_drivers_own(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    with pytest.raises(SystemExit) as ended:
        driver_program.serve(
            SwitchedDriver, ["slices", "-o", "json", "--folder", str(tmp_path)], driver_program.Extras(settings=SwitchedSettings)
        )
    assert ended.value.code in {0, None}
    assert "ssd.example.com" in capsys.readouterr().out
