"""``make dist`` builds the same bytes wherever and whenever it runs, and what it builds is complete."""

import os
import pathlib
import re
import subprocess
import tarfile
import zipfile

import pytest

from fakes import wheels

ROOT = pathlib.Path(__file__).parents[3]
PACKAGES = {
    "drakit": "driver/drakit",
    "drakit_gpu": "driver/drakit_gpu",
    "drakit_nic": "driver/drakit_nic",
    "drakit_tools": "driver/drakit_tools",
    "drakit_cluster": "cluster/drakit_cluster",
}
OUTSIDE = {"pyproject.toml", "README.md", "LICENSE"}


def tracked() -> list[str]:
    """The files of the checkout, also those that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "driver", "cluster", "protos", "*.*", "LICENSE"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and not name.startswith(("tests/", "docs/")) and (ROOT / name).is_file()]


def copied(folder: pathlib.Path, *, mode: int, seconds: int) -> pathlib.Path:
    """A copy of the checkout with other times and permissions."""
    for name in tracked():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod(mode)
        os.utime(target, (seconds, seconds))
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("dist")
    wheels.build(folder, copied(tmp_path_factory.mktemp("one"), mode=0o600, seconds=1_000_000_000))
    return folder


def test_what_is_built_does_not_depend_on_place_time_or_permissions(dist: pathlib.Path, tmp_path: pathlib.Path) -> None:
    wheels.build(tmp_path / "again", copied(tmp_path / "two", mode=0o664, seconds=1_500_000_000))
    first, second = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in (dist, tmp_path / "again"))
    assert set(first) == {f"{name}-0.1.0{kind}" for name in PACKAGES for kind in ("-py3-none-any.whl", ".tar.gz")}
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_the_makefile_runs_what_is_tested_here() -> None:
    recipe = re.search(r"^dist: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert re.search(r"for project in (.*);", recipe[1])[1].split() == sorted(folder or "." for folder in wheels.FOLDERS.values())  # type: ignore[index] # it is there


def test_the_wheels_have_every_module_and_the_template(dist: pathlib.Path) -> None:
    for wheel, package in PACKAGES.items():
        with zipfile.ZipFile(dist / f"{wheel}-0.1.0-py3-none-any.whl") as archive:
            names = set(archive.namelist())
        below = pathlib.PurePosixPath(package)
        files = [pathlib.PurePosixPath(name) for name in tracked() if name.startswith(f"{package}/")]
        expected = {str(file.relative_to(below.parent)) for file in files if file.parent != below or file.name not in OUTSIDE}
        assert expected <= names
        assert f"{wheel}/py.typed" in names
        others = {name for name in names - expected if ".dist-info/" not in name}
        assert others == ({"drakit-0.1.0.data/scripts/drakit-probe", "drakit_command.py"} if wheel == "drakit" else set())


def test_the_source_distributions_build_the_same_wheels(dist: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in PACKAGES:
        with tarfile.open(dist / f"{name}-0.1.0.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
    for name, folder in wheels.FOLDERS.items():
        if folder:
            (tmp_path / f"{name}-0.1.0").rename(tmp_path / "drakit-0.1.0" / folder)
    wheels.build(tmp_path / "again", tmp_path / "drakit-0.1.0", only="wheel")
    for wheel in dist.glob("*.whl"):
        assert wheel.read_bytes() == (tmp_path / "again" / wheel.name).read_bytes()
