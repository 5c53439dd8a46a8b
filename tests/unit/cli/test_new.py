"""``drakit new`` makes a project whose tests pass at once, and examples/hello is one."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from drakit.cli.commands import new
from drakit.core import errors

ROOT = pathlib.Path(__file__).parents[3]
HELLO = ROOT / "examples" / "hello"


def made(folder: pathlib.Path, name: str) -> dict[str, str]:
    new.write(folder, new.checked(name))
    return {str(file.relative_to(folder)): file.read_text() for file in files(folder)}


def files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    return (file for file in sorted(folder.rglob("*")) if file.is_file() and not {"__pycache__", ".pytest_cache"} & set(file.parts))


def python(folder: pathlib.Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'driver'}{os.pathsep}{ROOT / 'cluster'}", **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=110
    )


def test_the_hello_example_is_what_is_made(tmp_path: pathlib.Path) -> None:
    assert made(tmp_path / "new", "hello.example.com") == {str(file.relative_to(HELLO)): file.read_text() for file in files(HELLO)}


def test_the_tests_of_a_new_project_pass_at_once(tmp_path: pathlib.Path) -> None:
    made(tmp_path / "new", "two-words.example.com")
    ran = python(tmp_path / "new", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_a_new_project_is_a_command(tmp_path: pathlib.Path) -> None:
    made(tmp_path / "new", "fpga.example.com")
    (tmp_path / "boards" / "board-7").mkdir(parents=True)
    (tmp_path / "boards" / "board-7" / "model").write_text("m\n")
    (tmp_path / "boards" / "board-7" / "memory").write_text("1Gi\n")
    variables = {"FPGA_FOLDER": str(tmp_path / "boards"), "COLUMNS": "80"}
    ran = python(tmp_path / "new", "-m", "fpga_driver", "slices", "-o", "yaml", **variables)
    assert ran.returncode == 0, ran.stderr
    assert yaml.safe_load(ran.stdout)["spec"]["devices"][0]["name"] == "board-7"
    shown = python(tmp_path / "new", "-m", "fpga_driver", "--help", **variables).stdout
    assert "python -m fpga_driver [OPTIONS] COMMAND" in shown
    refused = python(tmp_path / "new", "-m", "fpga_driver", "slices", "--set", "mock.machine=dgx-h100", **variables)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("python -m fpga_driver: mock.machine: mock machines are for drakit's own drivers")


def test_its_manifests_are_what_the_api_server_takes(tmp_path: pathlib.Path) -> None:
    written = made(tmp_path / "new", "fpga.example.com")
    kinds = [item["kind"] for item in yaml.safe_load_all(written["deploy/driver.yaml"])]
    assert kinds == ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet", "DeviceClass"]
    linted = python(tmp_path / "new", "-m", "drakit", "lint", "-f", "deploy/driver.yaml", "-f", "deploy/sample.yaml")
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_its_rights_are_those_of_drakits_own_driver() -> None:
    base = (ROOT / "daemonset" / "base" / "rbac.yaml").read_text()
    own, theirs = rules((HELLO / "deploy" / "driver.yaml").read_text()), rules(base)
    for rule in (*own, *theirs):
        if "resourceclaims/driver" in rule["resources"]:
            assert rule.pop("resourceNames"), "each writes the statuses of its own devices"
    assert verbs(own) == verbs(theirs)


def rules(manifest: str) -> list[dict[str, list[str]]]:
    """The rules of every ClusterRole of a manifest."""
    return [rule for item in yaml.safe_load_all(manifest) if item["kind"] == "ClusterRole" for rule in item["rules"]]


def verbs(found: list[dict[str, list[str]]]) -> set[tuple[str, str, str]]:
    return {(group, name, verb) for rule in found for group in rule["apiGroups"] for name in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("name", ["", "fpga", "FPGA.example.com", "7.example.com", "a..b", "-a.example.com", "x" * 64 + ".example.com"])
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(errors.SettingsError, match="--name"):
        made(tmp_path / "new", name)
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_not_written_over(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(errors.SettingsError, match="is not empty"):
        made(tmp_path, "fpga.example.com")
    with pytest.raises(errors.SettingsError, match="cannot write"):
        made(tmp_path / "mine.txt" / "x", "fpga.example.com")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
