"""Every example, and what ``drakit new`` writes, is a project that installs, passes its tests and is typed where no index has drakit."""

import os
import pathlib
import re
import shutil
import subprocess
import tomllib
import zipfile
from typing import Any

import pytest
import yaml

from drakit_tools.commands import new
from fakes import forked_cli, manifests, wheels

EXAMPLES = sorted(path.parent for path in (manifests.ROOT / "examples").glob("*/pyproject.toml"))
FAMILY = manifests.ROOT / "examples" / "tpu"
"""The example that has no command of its own: ``drakit run`` serves it."""

RARELY = {"cpu", "fpga", "hello", "tpu"}
"""The examples that the full run installs. hello is the new project below; what the others show is tested without an environment of their own too."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> wheels.CleanEnvironment:
    """A Python with third-party packages and without drakit; a process of its own, because an example starts clusters."""
    return wheels.CleanEnvironment(tmp_path_factory.mktemp("clean"))


def check(clean: wheels.CleanEnvironment, project: pathlib.Path, mypy_cache: pathlib.Path) -> None:
    """Install a project, type-check it and run its tests, of which one is the conformance suite."""
    clean.install(project)
    (package,) = project.glob("*_driver")
    clean.check_types(project, mypy_cache, package.name, "tests")
    assert "testing.check_driver(" in "".join(file.read_text() for file in (project / "tests").glob("*.py"))
    tested = clean.run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "skipped" not in tested
    assert command_of(project) in {file.name for file in clean.python.parent.iterdir()}


def command_of(project: pathlib.Path) -> str:
    """Return the command that runs a project's driver."""
    settings: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    (command,) = settings.get("scripts", {"drakit": ""})
    assert command == "drakit" if project.name == FAMILY.name else command == settings["name"]
    return str(command)


def job_of(project: pathlib.Path) -> list[str]:
    """Return the commands of a project's job for CI."""
    (job,) = yaml.load((project / ".github" / "workflows" / "ci.yml").read_text(), Loader=yaml.CSafeLoader)["jobs"].values()
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step)
    return [step["run"] for step in job["steps"] if "run" in step]


def run_as_job(clean: wheels.CleanEnvironment, project: pathlib.Path, command: str) -> None:
    """Run a command as the runner of GitHub's actions does; the project is installed."""
    variables = {**wheels.environment(), "PATH": f"{clean.python.parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command], cwd=project, env=variables, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"


def test_there_are_examples() -> None:
    assert [path.name for path in EXAMPLES] == [*manifests.EXAMPLES, FAMILY.name]


@pytest.mark.parametrize(
    "folder", [pytest.param(path, id=path.name, marks=[pytest.mark.full] if path.name in RARELY else []) for path in EXAMPLES]
)
def test_an_example_works_where_drakit_was_never_seen(
    folder: pathlib.Path, clean: wheels.CleanEnvironment, mypy_cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    check(clean, wheels.copied(folder, tmp_path / folder.name), mypy_cache)


@pytest.mark.skipif(shutil.which("helm") is None, reason="the job runs helm, which is not installed")
def test_the_job_of_a_new_project_works_where_drakit_was_never_seen(
    clean: wheels.CleanEnvironment, mypy_cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "two-words"
    new.write(folder, new.checked(folder, "acme.example.com"), wheels.built())
    install, *commands, image = job_of(folder)
    assert install == "python -m pip install wheels/*.whl -e '.[dev]'"
    clean.install(folder)
    for command in commands:
        run_as_job(clean, folder, command)
    assert image == "docker build -t two-words-driver .", "what the Dockerfile does is tested below"
    assert "<testsuite " in (folder / "tests.xml").read_text()
    assert "two-words-driver-webhook" in (folder / "chart.yaml").read_text()
    clean.check_types(folder, mypy_cache, "two_words_driver", "tests")
    clean.run(folder, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path), ".")
    (wheel,) = tmp_path.glob("two_words_driver-*.whl")
    metadata = zipfile.ZipFile(wheel).read("two_words_driver-0.1.0.dist-info/METADATA").decode()
    assert "Requires-Dist: drakit~=" in metadata
    assert "file:" not in metadata, "it installs on other machines"
    assert clean.run(folder, "-c", "import drakit; print(drakit.__file__)").startswith(str(clean.python.parents[1]))
    probe = clean.python.parent / "drakit-probe"
    assert probe.read_text().startswith(f"#!{clean.python.parent}")
    assert os.access(probe, os.X_OK)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_the_image_of_an_example_has_all_that_its_dockerfile_names(folder: pathlib.Path) -> None:
    text = (folder / "Dockerfile").read_text()
    project = (folder / "pyproject.toml").read_text()
    (wheel,) = re.findall(r"^RUN .* wheels/(\S+)$", text, re.MULTILINE)
    missing = {source for source, _ in copies(text) if not (folder / source).exists()}
    assert missing <= {f"wheels/{wheel}"}, "only what `make dist` puts there"
    assert f'dependencies = ["drakit~={wheel.split("-")[1]}"]' in project
    assert wheel == wheels.built().drakit.name
    (command,) = re.findall(r'^ENTRYPOINT \["(\S+)"\]$', text, re.MULTILINE)
    assert command == command_of(folder)


def copies(dockerfile: str) -> list[tuple[str, str]]:
    """Return what a Dockerfile copies: source and target."""
    lines = [line.split() for line in re.findall(r"^COPY (.+)$", dockerfile, re.MULTILINE)]
    return [(source, target) for *sources, target in lines for source in sources]


def test_an_image_is_built_without_the_local_cluster(tmp_path: pathlib.Path) -> None:
    clean = wheels.CleanEnvironment(tmp_path / "environment")
    project, image = wheels.copied(manifests.ROOT / "examples" / "hello", tmp_path / "hello"), tmp_path / "src"
    text = (project / "Dockerfile").read_text()
    for source, target in copies(text):
        place = image / target / pathlib.Path(source).name if target.endswith("/") else image / target
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (project / source).is_dir() else shutil.copyfile)(project / source, place)
    for command in re.findall(r"^RUN pip install (.+)$", text, re.MULTILINE):
        clean.pip_install(image, *command.split(), "--no-build-isolation")
    assert "run" in clean.run(image, "-m", "hello_driver", "--help")
    assert [file.name for file in image.rglob("*.whl")] == [wheels.built().drakit.name]
    assert clean.run(image, "-c", "import importlib.util; print(importlib.util.find_spec('drakit_cluster'))").strip() == "None"


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_an_image_takes_its_packages_from_the_index_that_its_builder_names(folder: pathlib.Path) -> None:
    text = (folder / "Dockerfile").read_text()
    # pip reads a build argument of this name from its environment, in the commands below the line that declares it.
    assert 0 < text.index("\nARG PIP_INDEX_URL\n") < text.index("\nRUN ")


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_its_manifests_are_what_the_api_server_takes(folder: pathlib.Path, commands: forked_cli.Commands) -> None:
    linted = commands.run("lint", "-f", "deploy/deviceclass.yaml", "-f", "deploy/sample.yaml", folder=folder)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_the_demos_of_an_example_have_no_mistake_and_no_name_twice(commands: forked_cli.Commands) -> None:
    folder = manifests.ROOT / "examples" / "everything"
    linted = commands.run("lint", "--strict", "-f", "deploy/deviceclass.yaml", "-f", "demo", folder=folder)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_only_binding_conditions_need_to_watch_claims() -> None:
    def watches(name: str) -> bool:
        documents = yaml.load_all((manifests.ROOT / "examples" / name / "deploy" / "rbac.yaml").read_text(), Loader=yaml.CSafeLoader)
        rules = next(item["rules"] for item in documents if item["kind"] == "ClusterRole")
        return any(rule["resources"] == ["resourceclaims"] and "watch" in rule["verbs"] for rule in rules)

    assert {name for name in manifests.EXAMPLES if watches(name)} == {"everything", "fpga"}
