"""Every example is a project of its own whose tests pass, and whose manifests are what the API server takes."""

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
# examples/hello is what `drakit new` makes, and its tests are run where that is tested.
OWN = [path for path in EXAMPLES if path.name != "hello"]


def python(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("driver", "cluster")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=110
    )


def test_there_are_examples() -> None:
    assert [path.name for path in EXAMPLES] == ["cpu", "fpga", "hello"]


@pytest.mark.parametrize("folder", OWN, ids=lambda path: path.name)
def test_the_tests_of_an_example_pass(folder: pathlib.Path) -> None:
    ran = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout


@pytest.mark.parametrize("folder", OWN, ids=lambda path: path.name)
def test_its_manifests_are_what_the_api_server_takes(folder: pathlib.Path) -> None:
    linted = python(folder, "-m", "drakit", "lint", "-f", "deploy/driver.yaml", "-f", "deploy/sample.yaml")
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_only_binding_conditions_need_to_watch_claims() -> None:
    def watches(name: str) -> bool:
        documents = yaml.safe_load_all((ROOT / "examples" / name / "deploy" / "driver.yaml").read_text())
        rules = next(item["rules"] for item in documents if item["kind"] == "ClusterRole")
        return any(rule["resources"] == ["resourceclaims"] and "watch" in rule["verbs"] for rule in rules)

    assert {path.name for path in EXAMPLES if watches(path.name)} == {"fpga"}
