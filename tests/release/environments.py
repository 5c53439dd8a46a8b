"""Clean environments of several Python versions, in which a release is installed and tried."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINE = "dgx-a100-40gb-2gpu"
SECONDS = 1800


class CheckError(Exception):
    """A command failed in a clean environment. The message has the command and its output."""


def uv(root: pathlib.Path) -> pathlib.Path | None:
    """Return uv, installed from its lock into .venv-release of the checkout; None if the index cannot be reached."""
    folder = root / ".venv-release"
    program = folder / "bin" / "uv"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        command: list[str | pathlib.Path] = [
            folder / "bin" / "pip",
            "install",
            *options,
            "--requirement",
            root / "requirements" / "release.txt",
        ]
        if subprocess.run(command, check=False).returncode:
            return None
    return program


def interpreter(version: str, root: pathlib.Path) -> pathlib.Path | None:
    """Return a Python of this version: one of this machine, else one that uv downloads; None if there is none and it cannot be downloaded."""
    found = next((python for python in _candidates(version) if _is_version(python, version)), None)
    program = None if found else uv(root)
    if found or program is None:
        return found
    # Neither the environment that runs this nor the checkout may count as the answer, so it runs elsewhere.
    subprocess.run([program, "python", "install", "--quiet", version], cwd="/", check=False)
    find: list[str | pathlib.Path] = [program, "python", "find", "--managed-python", "--no-python-downloads", version]
    ran = subprocess.run(find, cwd="/", capture_output=True, text=True, check=False)
    return None if ran.returncode else pathlib.Path(ran.stdout.strip())


def _candidates(version: str) -> Iterator[pathlib.Path]:
    folders = [pathlib.Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = sorted((pathlib.Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    for folder in (*folders, *pyenv):
        if (python := folder / f"python{version}").exists():
            yield python


def _is_version(python: pathlib.Path, version: str) -> bool:
    """Return whether a Python has this version and is no virtual environment's. A program of pyenv fails where its version is not chosen."""
    code = "import sys; print(*sys.version_info[:2], sep='.'); print(sys.prefix == sys.base_prefix)"
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return ran.stdout.split() == [version, "True"]


def check(
    python: pathlib.Path, wheels: Sequence[pathlib.Path], version: str, folder: pathlib.Path, *, sources: Sequence[pathlib.Path] = ()
) -> None:
    """Install the wheels into a new environment in ``folder``, and try what a user does first. Raises CheckError.

    Source distributions take the place of the wheels afterwards, and are tried too.
    """
    place = folder / "venv"
    run([python, "-m", "venv", place], folder)
    install: list[str | pathlib.Path] = [place / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, *wheels], folder)
    _try(place, version, folder)
    if sources:
        run([*install, "--no-deps", "--force-reinstall", *sources], folder)
        _try(place, version, folder)


def _try(place: pathlib.Path, version: str, folder: pathlib.Path) -> None:
    run([place / "bin" / "pip", "check", "--disable-pip-version-check"], folder)
    printed = [run([place / "bin" / "drakit", "--version"], folder)]
    printed.append(run([place / "bin" / "python", "-c", "import drakit; print(drakit.__version__)"], folder))
    if {text.strip() for text in printed} != {version}:
        raise CheckError(f"drakit --version and drakit.__version__ are {printed}, not {version}")
    slices = run([place / "bin" / "drakit", "slices", "--mock", MACHINE, "--quiet", "-o", "json"], folder)
    if "gpu-0-mig-3g20gb-9-0" not in slices:
        raise CheckError(f"drakit slices has no MIG partition: {slices[:500]}")
    run([place / "bin" / "drakit", "demo", "--quiet"], folder)


def run(command: Sequence[str | pathlib.Path], folder: pathlib.Path) -> str:
    """Run a command in ``folder``, with a home of its own there; return its output. Raises CheckError."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DRAKIT_", "XDG_", "PYTHON", "VIRTUAL_ENV"))}
    given = {**kept, "HOME": str(folder)}
    try:
        ran = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CheckError(f"{' '.join(map(str, command))}: did not end within {SECONDS} s") from error
    if ran.returncode:
        raise CheckError(f"{' '.join(map(str, command))}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout
