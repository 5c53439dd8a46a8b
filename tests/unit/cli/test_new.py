"""``drakit new`` makes a project that works at once, and examples/hello is one. That a clean machine installs it is in tests/unit/examples."""

import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from drakit.core import errors
from drakit_tools.commands import new, new_wheels
from fakes import forked_cli, wheels

ROOT = pathlib.Path(__file__).parents[3]
HELLO = ROOT / "examples" / "hello"
NAMES = tuple(f"{name}-0.1.0-py3-none-any.whl" for name in ("drakit", "drakit_cluster", "drakit_tools"))


@pytest.fixture
def empty(tmp_path: pathlib.Path) -> new_wheels.Wheels:
    """Files with the names of wheels."""
    (tmp_path / "dist").mkdir()
    for name in NAMES:
        (tmp_path / "dist" / name).touch()
    return new_wheels.Wheels(drakit=tmp_path / "dist" / NAMES[0], cluster=tmp_path / "dist" / NAMES[1], tools=tmp_path / "dist" / NAMES[2])


def made(folder: pathlib.Path, name: str, given: new_wheels.Wheels) -> dict[str, str]:
    new.write(folder, new.checked(folder, name), given)
    return {str(file.relative_to(folder)): file.read_text() for file in files(folder)}


def files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    ignored = {"__pycache__", ".pytest_cache", "wheels"}
    return (file for file in sorted(folder.rglob("*")) if file.is_file() and not ignored & set(file.parts))


def test_a_new_project_is_the_hello_example(tmp_path: pathlib.Path, empty: new_wheels.Wheels) -> None:
    written = made(tmp_path / "hello", "hello.example.com", empty)
    assert written == {str(file.relative_to(HELLO)): file.read_text() for file in files(HELLO)}
    assert sorted(file.name for file in (tmp_path / "hello" / "wheels").iterdir()) == list(NAMES)


@pytest.mark.parametrize(
    "folder, package, project",
    [
        ("fpga", "fpga_driver", "fpga-driver"),
        ("fpga-driver", "fpga_driver", "fpga-driver"),
        ("My Boards_2", "my_boards_2_driver", "my-boards-2-driver"),
    ],
)
def test_the_package_is_named_after_the_folder(tmp_path: pathlib.Path, folder: str, package: str, project: str) -> None:
    named = new.checked(tmp_path / folder, "acme.example.com")
    assert (named.package, named.name) == (package, project)


def test_the_folder_may_be_the_current_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lamp").mkdir()
    monkeypatch.chdir(tmp_path / "lamp")
    assert new.checked(pathlib.Path(), "lamp.example.com").package == "lamp_driver"


@pytest.mark.parametrize("folder", ["7", "---", "é", "x" * 60])
def test_a_folder_that_cannot_name_a_package_is_refused(tmp_path: pathlib.Path, folder: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"DIR: .* must start with a letter"):
        new.checked(tmp_path / folder, "fpga.example.com")


def test_a_new_project_is_a_command(tmp_path: pathlib.Path, empty: new_wheels.Wheels, commands: forked_cli.Commands) -> None:
    made(tmp_path / "two-words", "fpga.example.com", empty)
    (tmp_path / "boards" / "board-7").mkdir(parents=True)
    (tmp_path / "boards" / "board-7" / "model").write_text("m\n")
    (tmp_path / "boards" / "board-7" / "memory").write_text("1Gi\n")
    environment = {**os.environ, "FPGA_FOLDER": str(tmp_path / "boards"), "COLUMNS": "80"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run("-m", "two_words_driver", *words, program="python", folder=tmp_path / "two-words", environment=environment)

    ran = run("slices", "-o", "yaml")
    assert ran.returncode == 0, ran.stderr
    assert yaml.load(ran.stdout, Loader=yaml.CSafeLoader)["spec"]["devices"][0]["name"] == "board-7"
    assert "python -m two_words_driver [OPTIONS] COMMAND" in run("--help").stdout
    refused = run("slices", "--set", "mock.machine=dgx-h100")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("python -m two_words_driver: mock: is not a setting; known are api.kubeconfig")


def test_a_package_may_have_the_name_of_a_file_of_tests(
    tmp_path: pathlib.Path, empty: new_wheels.Wheels, commands: forked_cli.Commands
) -> None:
    written = made(tmp_path / "test", "test.example.com", empty)
    assert {"test_driver/driver.py", "tests/test_driver.py"} <= written.keys()
    ran = commands.run("-m", "pytest", "-q", "--collect-only", "--assert=plain", program="python", folder=tmp_path / "test")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["", "fpga", "gpu.drakit.dev", "FPGA.example.com", "a..b", "-a.example.com", "x" * 64 + ".example.com"])
def test_an_invalid_name_is_refused_before_anything_is_written(tmp_path: pathlib.Path, empty: new_wheels.Wheels, name: str) -> None:
    with pytest.raises(errors.SettingsError, match="--name"):
        made(tmp_path / "new", name, empty)
    assert not (tmp_path / "new").exists()


def test_existing_files_are_not_overwritten(tmp_path: pathlib.Path, empty: new_wheels.Wheels) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "mine.txt").write_text("mine")
    with pytest.raises(errors.SettingsError, match="is not empty"):
        made(mine, "fpga.example.com", empty)
    with pytest.raises(errors.SettingsError, match="Not a directory"):
        made(mine / "mine.txt" / "x", "fpga.example.com", empty)
    assert [file.name for file in mine.iterdir()] == ["mine.txt"]


def test_a_given_wheel_brings_the_wheels_beside_it(empty: new_wheels.Wheels) -> None:
    with new_wheels.found(str(empty.drakit)) as given:
        assert given == empty
    empty.cluster.unlink()
    with pytest.raises(errors.SettingsError, match=f"--drakit: .*{NAMES[1]} is missing"), new_wheels.found(str(empty.drakit)):
        pass


def test_a_git_url_gives_the_wheels_of_its_repository(tmp_path: pathlib.Path) -> None:
    repository = tmp_path / "drakit.git"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = ("driver/", "cluster/", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
    for name in listed.split("\0"):
        if name.startswith(wanted) and (ROOT / name).is_file():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, repository / name)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    quick = [["config", "core.compression", "0"], ["config", "pack.window", "0"]]
    for command in (["init", "--quiet"], *quick, ["add", "."], [*identity, "commit", "--quiet", "-m", "a"]):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)
    with new_wheels.found(f"git+file://{repository}") as given:
        assert (given.drakit.name, given.cluster.name, given.tools.name) == NAMES
        assert [wheel.read_bytes() for wheel in (given.drakit, given.cluster, given.tools)] == [
            wheel.read_bytes() for wheel in (wheels.built().drakit, wheels.built().cluster, wheels.built().tools)
        ]


@pytest.mark.parametrize(
    "source, said",
    [
        ("nowhere", "nowhere is not a checkout of drakit: .*nowhere/pyproject.toml is missing"),
        ("nowhere.whl", "nowhere.whl does not exist; choose a checkout, a wheel or a git URL"),
        ("git+file:///nowhere", "cannot build wheels of git[+]file:///nowhere: .*nowhere"),
    ],
)
def test_a_source_without_drakit_is_an_error_of_one_line(
    tmp_path: pathlib.Path, commands: forked_cli.Commands, source: str, said: str
) -> None:
    ran = commands.run("new", str(tmp_path / "lamp"), "--name", "lamp.example.com", "--drakit", source, folder=tmp_path)
    assert ran.returncode == 2
    assert re.fullmatch(f"drakit: --drakit: {said}.*\n", ran.stderr)
    assert not (tmp_path / "lamp").exists()


class Installed:
    """A distribution whose record says where it came from."""

    def __init__(self, origin: object) -> None:
        self.version = "7.8"
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


@pytest.mark.parametrize(
    "origin, source",
    [
        (None, "drakit==7.8"),
        ({"url": "file:///src/my%20drakit", "dir_info": {"editable": True}}, "/src/my drakit"),
        ({"url": "file:///dist/drakit-7.8-py3-none-any.whl", "archive_info": {}}, "/dist/drakit-7.8-py3-none-any.whl"),
        (
            {"url": "https://git.example.com/drakit", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "git+https://git.example.com/drakit@abc",
        ),
    ],
)
def test_the_source_of_drakit_is_read_from_its_installation_record(origin: object, source: str) -> None:
    assert new_wheels.origin(Installed(origin)) == source
