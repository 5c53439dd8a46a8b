"""What is installed is what was locked: every file of a dependency is checked by its hash."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest

from fakes import waits, wheels

ROOT = pathlib.Path(__file__).parents[3]
OURS = {"drakit", "drakit-cluster", "drakit-gpu", "drakit-nic", "drakit-tools"}
LOCKS = {name: ROOT / "requirements" / f"{name}.txt" for name in ("dev", "image")}
TOOLS = tuple(ROOT / "requirements" / f"{name}.txt" for name in ("docs", "sbom"))
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\\n]+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)*)", re.MULTILINE)


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: pathlib.Path) -> dict[str, str]:
    return {normalized(name): version for name, version, _ in PIN.findall(path.read_text("utf-8"))}


def names(requirements: list[str]) -> set[str]:
    return {normalized(re.split(r"[<>=\[]", requirement)[0]) for requirement in requirements} - OURS


def test_the_workflows_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code; a commit cannot."""
    workflows = (path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.y*ml"))
    used = [line for text in workflows for line in re.findall(r"^.*\buses:\s*(.*)$", text, re.MULTILINE)]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[0-9]+\.[0-9]+\.[0-9]+", line)] == []


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_every_pin_of_a_lock_has_hashes(lock: pathlib.Path) -> None:
    found = PIN.findall(lock.read_text("utf-8"))
    assert len(found) > 40
    assert [name for name, _, hashes in found if not hashes] == []


@pytest.mark.parametrize("lock", TOOLS, ids=lambda path: path.stem)
def test_tools_are_locked_with_hashes_too(lock: pathlib.Path) -> None:
    found = PIN.findall(lock.read_text("utf-8"))
    assert lock.with_suffix(".in").read_text("utf-8").strip() in {f"{name}=={version}" for name, version, _ in found}
    assert [name for name, _, hashes in found if not hashes] == []


def test_the_locks_hold_every_direct_dependency_and_the_build_back_end() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    parts = {name: tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8")) for name, folder in wheels.FOLDERS.items()}
    direct = {name: part["project"]["dependencies"] for name, part in parts.items()}
    image = names(direct["drakit"] + direct["drakit_gpu"] + direct["drakit_nic"])
    (back_end,) = project["build-system"]["requires"]
    assert image <= set(pins(LOCKS["image"]))
    dev = project["project"]["optional-dependencies"]["dev"]
    assert image | names(direct["drakit_cluster"] + direct["drakit_tools"] + dev) <= set(pins(LOCKS["dev"]))
    assert [part["build-system"] for part in parts.values()] == [project["build-system"]] * len(parts)
    assert [f"hatchling=={pins(lock)['hatchling']}" for lock in LOCKS.values()] == [back_end, back_end]


def test_the_local_cluster_and_drakit_need_each_other_in_the_same_version() -> None:
    drakit, local_cluster = (tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in ("", "cluster"))
    assert local_cluster["version"] == drakit["version"]
    assert drakit["optional-dependencies"]["cluster"] == [f"drakit-cluster=={drakit['version']}"]
    assert f"drakit=={drakit['version']}" in local_cluster["dependencies"]
    assert (ROOT / "cluster" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_manifests_and_chart_have_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    chart = (ROOT / "daemonset" / "chart" / "Chart.yaml").read_text("utf-8")
    assert re.findall(r'^(?:version|appVersion): "?([^"\n]+)"?$', chart, re.MULTILINE) == [version, version]
    tags = {
        path.relative_to(ROOT).as_posix(): re.findall(r'newTag: "([^"]+)"', path.read_text("utf-8"))
        for path in (ROOT / "daemonset").rglob("kustomization.yaml")
    }
    assert len([tag for tag in tags.values() if tag]) == 3
    assert {tag for found in tags.values() for tag in found} == {version}


def test_the_command_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert importlib.metadata.version("drakit") == version


def test_the_image_has_the_versions_that_are_tested() -> None:
    tested = pins(LOCKS["dev"])
    assert pins(LOCKS["image"]).items() <= tested.items()
    assert pins(ROOT / "constraints.txt") == tested


def test_nothing_is_fetched_without_a_hash() -> None:
    scripts = [ROOT / "Dockerfile", ROOT / ".ci" / "setup", ROOT / ".ci" / "kubectl"]
    fetching = [
        line
        for script in scripts
        for line in script.read_text("utf-8").replace("\\\n", " ").splitlines()
        if re.search(r"pip (install|wheel|download)", line) and not line.lstrip().startswith("#")
    ]
    checked = ("--require-hashes", "--no-index", "--no-build-isolation", "$wheel/pip")
    assert len(fetching) >= 5
    assert [line for line in fetching if not any(word in line for word in checked)] == []


def test_both_stages_of_the_image_start_from_the_digest_that_was_given() -> None:
    bases = re.findall(r"^FROM (?:--platform=\S+ )?(\S+)", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert bases == ["python:${PYTHON}-slim${BASE_DIGEST:+@${BASE_DIGEST}}"] * 2


def test_a_wheel_with_other_contents_than_the_locked_one_is_refused(tmp_path: pathlib.Path) -> None:
    name, version = next(iter(pins(LOCKS["image"]).items()))
    with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-{version}.dist-info/RECORD", "")
    command = [sys.executable, "-m", "pip", "download", "--isolated", "--no-index", "--no-deps", "--require-hashes"]
    answer = subprocess.run(
        [*command, "--find-links", str(tmp_path), "--dest", str(tmp_path / "out"), "--requirement", str(LOCKS["image"])],
        capture_output=True,
        text=True,
        check=False,
        timeout=waits.SECONDS,
    )
    assert answer.returncode != 0
    assert "DO NOT MATCH THE HASHES" in answer.stderr
