"""The command line of somebody's own driver: every command is about that driver, and so is every word of its help."""

import dataclasses
import json
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import drakit
from drakit import testing
from drakit.cli import driver_program as authors
from drakit.core import errors, names
from drakit.node import restore_loop
from fakes import author, command_line

COMMANDS = ("run", "slices", "show", "prepare", "unprepare", "lint", "webhook")
JOURNAL = ("show", "verify")
CALLS = [*((command,) for command in COMMANDS), *(("journal", command) for command in JOURNAL)]

Program = Callable[..., command_line.Result]


@pytest.fixture
def program(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    hardware = author.Hardware()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "boards")])

    def run(*arguments: str) -> command_line.Result:
        capsys.readouterr()
        try:
            authors.serve(lambda: author.FakeDriver(hardware), arguments)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        written = capsys.readouterr()
        return command_line.Result(status=status, out=written.out, err=written.err)

    return run


@pytest.fixture
def on_node(program: Program, tmp_path: pathlib.Path) -> Program:
    return lambda *arguments: program(*arguments, "--node", "node-1", "--folder", str(tmp_path / "node"))


def test_every_command_is_listed_by_help(program: Program) -> None:
    for commands, outcome in ((COMMANDS, program("--help")), (JOURNAL, program("journal", "--help"))):
        assert outcome.status == 0
        for command in commands:
            assert re.search(rf"^\W*{command}\b", outcome.out, re.MULTILINE), command


@pytest.mark.parametrize("call", [(), ("journal",), *CALLS], ids=" ".join)
def test_help_names_only_the_authors_driver(program: Program, call: tuple[str, ...]) -> None:
    outcome = program(*call, "--help")
    assert outcome.status == 0
    assert re.search(r"mock|dgx|\bgpu|\bnic\b|\bmig\b|--family|drakit (?!\.)[a-z]+ ", outcome.out, re.IGNORECASE) is None, outcome.out


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_the_help_of_every_command_has_an_example_of_it(program: Program, call: tuple[str, ...]) -> None:
    _, _, example = program(*call, "--help").out.partition("Example")
    assert re.search(rf"\bboards {' '.join(call)}\b", example)


def test_the_setting_that_help_gives_as_an_example_is_one(on_node: Program) -> None:
    assert "publish.rescan=30" in " ".join(on_node("slices", "--help").out.replace("│", "").split())
    assert on_node("slices", "--set", "publish.rescan=30").status == 0
    assert on_node("slices", "--set", "publish.rescam=30").status == 2


def test_options_of_drakits_own_drivers_are_refused(on_node: Program) -> None:
    for command in ("slices", "show"):
        assert (on_node(command, "--mock", "dgx-a100-40gb-2gpu").status, on_node(command, "--family", "gpu").status) == (2, 2)


def test_the_journal_is_shown_and_verified(on_node: Program, tmp_path: pathlib.Path) -> None:
    result = {"request": "chip", "driver": "fake.example.com", "pool": "node-1", "device": "chip-0"}
    claim = command_line.CommandLine(run=on_node, folder=tmp_path).claim_file(result)
    assert on_node("journal", "show", "-o", "json").out == "[]\n"
    assert on_node("prepare", claim).status == 0
    table = on_node("journal", "show").out.splitlines()
    assert table[1].split() == ["default/claim", command_line.UID, "fake.example.com", "prepared", "this", "chip-0"]
    shown = json.loads(on_node("journal", "show", command_line.UID, "-o", "json").out)
    assert shown["grants"][0]["record"] == {"made": "chip-0"}
    assert json.loads(on_node("journal", "show", "-o", "json").out) == [shown]
    verified = on_node("journal", "verify")
    assert (verified.status, verified.out) == (0, "fake.example.com: ok\n")
    [file] = (tmp_path / "node" / "cdi").glob("*.json")
    file.unlink()
    verified = on_node("journal", "verify")
    assert (verified.status, verified.err) == (1, "boards: the check found problems, listed above\n")
    assert f"{file} is missing or modified" in verified.out


def test_show_names_the_node_whose_driver_keeps_the_folder(program: Program) -> None:
    hardware = author.Hardware()
    with testing.Cluster(lambda: author.FakeDriver(hardware), node_names=["node-7"]) as cluster:
        cluster.wait_published(7)
        folder = str(cluster.local.node("node-7").folder.root)
        assert "fake.example.com on node-7\n" in program("show", "--folder", folder).out
        [shown] = json.loads(program("show", "--folder", folder, "-o", "json").out)
        assert shown["pool"] == "node-7"
        assert "on node-8\n" in program("show", "--folder", folder, "--node", "node-8").out


def test_messages_name_the_authors_own_command(on_node: Program, tmp_path: pathlib.Path) -> None:
    result = {"request": "chip", "driver": "fake.example.com", "pool": "node-1", "device": "chip-0"}
    shell = command_line.CommandLine(run=on_node, folder=tmp_path)
    assert on_node("prepare", shell.claim_file(result)).status == 0
    other = shell.claim_file(result, name="other", uid="00000000-0000-4000-8000-000000000001")
    assert f"(if it is gone: boards unprepare {command_line.UID})" in on_node("prepare", other).err
    shutil.rmtree(tmp_path / "node" / "plugins" / "fake.example.com")
    lost = on_node("prepare", other).err
    assert "run boards prepare with the files of all claims in use" in lost
    assert lost.endswith(f"and boards unprepare for the others: boards unprepare {command_line.UID}\n")
    released = on_node("unprepare", command_line.UID)
    assert released.err.endswith("boards: all claims of the lost journal of fake.example.com are restored\n")
    assert on_node("prepare", other).status == 0


def test_a_lost_journal_names_the_authors_program_in_its_fix() -> None:
    assert restore_loop.describe({names.ClaimUid("uid-1"): "broken"}, "python -m boards").endswith("run: python -m boards unprepare UID")


class Pooled(author.FakeDriver, drakit.ClusterPools):
    """Has pools that belong to no node."""

    def cluster_pools(self) -> Sequence[drakit.ClusterPool]:
        return ()


def test_only_a_program_that_publishes_pools_has_the_settings_of_the_election(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = ["--set", "election.namespace=default", "--folder", str(tmp_path)]
    for kind, status in ((Pooled, 0), (author.FakeDriver, 2)):
        with pytest.raises(SystemExit) as ended:
            authors.serve(lambda kind=kind: kind(author.Hardware()), ["slices", *setting])
        assert int(ended.value.code or 0) == status
        assert ("election: is not a setting" in capsys.readouterr().err) is bool(status)


def test_lint_checks_parameters_of_the_authors_driver(program: Program, tmp_path: pathlib.Path) -> None:
    opaque = {"driver": "fake.example.com", "parameters": {"apiVersion": "fake.example.com/v1", "kind": "Tuning", "spede": 7}}
    claim = testing.claim("mine", device_class="chips")
    claim["spec"]["devices"]["config"] = [{"opaque": opaque}]
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    linted = program("lint", str(tmp_path / "claim.json"))
    assert linted.status == 1
    assert "config[0].opaque.parameters.spede: is not a known field" in linted.out
    opaque["parameters"] = {"apiVersion": "fake.example.com/v1", "kind": "Tuning", "speed": 7}
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    assert "parameters" not in program("lint", str(tmp_path / "claim.json")).out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boards:
    """Settings of the driver's own."""

    folder: pathlib.Path = pathlib.Path("/var/lib/boards")


def test_lint_works_in_a_program_with_settings_of_its_own(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "claim.json").write_text(json.dumps(testing.claim("mine", device_class="chips")))

    def make(own: Boards) -> author.FakeDriver:
        assert isinstance(own.folder, pathlib.Path)
        return author.FakeDriver(author.Hardware())

    with pytest.raises(SystemExit) as ended:
        authors.serve(make, ["lint", str(tmp_path / "claim.json")], authors.Extras(settings=Boards))
    assert not ended.value.code
    assert capsys.readouterr().out == "1 object: 0 errors, 0 warnings\n"


class Measuring(author.FakeDriver, drakit.MetricsProvider):
    """Reads its metrics by the context, which it has only once it is started."""

    context: drakit.DriverContext | None = None

    def start(self, context: drakit.DriverContext) -> None:
        self.context = context

    def metrics(self) -> Sequence[drakit.Metric]:
        assert self.context is not None
        return [drakit.Metric(name="claims", documentation="Claims.", value=len(self.context.grants()))]


@pytest.mark.parametrize("command", ["show", "slices"])
def test_a_driver_whose_metrics_need_its_start_can_be_shown(
    command: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        authors.serve(lambda: Measuring(author.Hardware()), [command, "--node", "node-1", "--folder", str(tmp_path)])
    assert not ended.value.code
    assert "Traceback" not in capsys.readouterr().err


class Misplaced(author.FakeDriver):
    """Gives containers a device node that is not on the host."""

    def prepare(self, grant: drakit.Grant[author.Tuning]) -> drakit.Prepared:
        return drakit.Prepared(edits=drakit.Edits(device_nodes=(drakit.DeviceNode(path="/dev/no-such-board"),)))


def test_a_device_node_that_is_not_on_the_host_is_one_line_of_prepare(
    program: Program, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"request": "chip", "driver": "fake.example.com", "pool": "node-1", "device": "chip-0"}
    claim = command_line.CommandLine(run=program, folder=tmp_path).claim_file(result)
    with pytest.raises(SystemExit) as ended:
        authors.serve(lambda: Misplaced(author.Hardware()), ["prepare", claim, "--node", "node-1", "--folder", str(tmp_path / "node")])
    assert not ended.value.code
    assert capsys.readouterr().err.splitlines() == [
        "boards: warning: default/claim: device node /dev/no-such-board: No such file or directory, so no container can start with it on this host"
    ]


class Nameless(author.FakeDriver):
    name = None  # type: ignore[assignment]  # what an author's mistake is


class Misnamed(author.FakeDriver):
    name = "Boards of mine"


class Asynchronous(author.FakeDriver):
    async def stop(self) -> None:  # type: ignore[override]  # what an author's mistake is
        """Would stop nothing."""


@pytest.mark.parametrize(
    "make, said",
    [
        (
            lambda: Asynchronous(author.Hardware()),
            "Asynchronous.stop is async, and drakit calls verbs in threads of its own; "  # noqa: ISC004 - one text
            "write def stop(...), and run the asynchronous part in it with asyncio.run(...)",
        ),
        (
            lambda: Nameless(author.Hardware()),
            'Nameless.name is missing; write name = "fpga.example.com", a DNS subdomain of yours, in the class',
        ),
        (
            lambda: Misnamed(author.Hardware()),
            "Misnamed.name: 'Boards of mine' is not a driver name (a DNS subdomain of at most 63 characters)",
        ),
        (lambda: None, "<lambda>() returns NoneType; return an object whose class extends drakit.Driver"),
        (lambda: Misnamed, "<lambda>() returns the class Misnamed; return an object whose class extends drakit.Driver"),
    ],
)
def test_an_object_that_is_not_a_driver_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str], make: Callable[[], Any], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        authors.serve(make, ["slices"])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f": {said}")
    with pytest.raises(errors.DrakitError, match=re.escape(said)):
        testing.check_driver(make)
