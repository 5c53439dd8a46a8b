"""The wheels of drakit as ``make dist`` builds them, and virtual environments in which nothing but third-party packages is installed."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

from drakit_tools.commands import new_wheels
from fakes import run_folder

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = {
    **new_wheels.FOLDERS,
    "drakit_gpu": "driver/drakit_gpu",
    "drakit_nic": "driver/drakit_nic",
}
"""The folder of each distribution."""
_OURS = ("drakit", "tpu_driver", "_editable_impl_", "__pycache__")


def build(folder: pathlib.Path, source: pathlib.Path = ROOT, *, only: str = "") -> None:
    """Build wheels and source distributions as the Makefile's target does, or ``only`` one kind, in one process."""
    options = ("-t", only) if only else ()
    ran = new_wheels.build([str(source / project) for project in FOLDERS.values()], folder, *options, environment=environment())
    assert ran.returncode == 0, ran.stderr


@functools.cache
def built() -> new_wheels.Wheels:
    """Return the wheels of this checkout; the first process of a test run that needs them builds them for all."""
    folder = run_folder.folder("wheels")
    run_folder.made_once(folder, lambda folder: build(folder, only="wheel"))
    drakit, cluster, tools = (next(folder.glob(f"{name}-*.whl")) for name in new_wheels.FOLDERS)
    return new_wheels.Wheels(drakit=drakit, cluster=cluster, tools=tools)


def environment() -> dict[str, str]:
    """Return this process's environment without what would show the checkout to a Python, or to pytest the plugins of the checkout's tests."""
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class CleanEnvironment:
    """A virtual environment with the third-party packages of this one, and without drakit, or with what is installed in ``other``."""

    def __init__(self, folder: pathlib.Path, other: "CleanEnvironment | None" = None) -> None:
        venv.create(folder / "venv", symlinks=True, with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        packages = folder / "third-party"
        packages.mkdir()
        for entry in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith(_OURS):
                (packages / entry.name).symlink_to(entry)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "venv" / "lib" / version / "site-packages"
        others = [other.site] if other is not None else []
        (self.site / "third-party.pth").write_text("".join(f"{place}\n" for place in [packages, *others]))

    def run(self, folder: pathlib.Path, *arguments: str) -> str:
        """Run Python there; return what it wrote. Raises AssertionError where it fails."""
        ran = subprocess.run([self.python, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def check_types(self, folder: pathlib.Path, cache: pathlib.Path, *names: str) -> None:
        """Check files and packages of a folder by mypy in strict mode, without any configuration; see ``strict_mypy``."""
        self.run(folder, *strict_mypy(cache), *names)

    def install(self, folder: pathlib.Path) -> None:
        """Run ``pip install wheels/*.whl -e '.[dev]'``."""
        self.pip_install(folder, "--no-build-isolation", *map(str, sorted((folder / "wheels").glob("*.whl"))), "-e", ".[dev]")

    def pip_install(self, folder: pathlib.Path, *arguments: str) -> None:
        """Install with no index: whatever neither the arguments nor third-party packages have is not found.

        pip does not warn of conflicts, for which it would parse what all those packages require.
        """
        self.run(folder, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-warn-conflicts", *arguments)


def strict_mypy(cache: pathlib.Path) -> list[str]:
    """Return the arguments for a Python that checks types as authors do. mypy compares contents, so runs on equal copies of drakit share a cache."""
    return ["-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(cache)]


def give(folder: pathlib.Path) -> None:
    """Put the wheels into a project."""
    new_wheels.copy(built(), folder / "wheels")


def copied(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Return a copy of an example with its wheels, as ``make dist`` leaves it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".venv", "wheels"))
    give(target)
    return target
