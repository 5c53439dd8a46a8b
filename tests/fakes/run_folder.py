"""Folders that all processes of a test run share, and results that the first of them makes for all."""

import atexit
import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

VARIABLE = "TEST_RUN_FOLDER"
"""The variable with the folder of a test run (tests/conftest.py)."""


@functools.cache
def folder(name: str) -> pathlib.Path:
    """Return a folder that is gone after the test run; without a run's folder, one of this process's own."""
    if VARIABLE in os.environ:
        shared = pathlib.Path(os.environ[VARIABLE], name)
        shared.mkdir(exist_ok=True)
        return shared
    own = pathlib.Path(tempfile.mkdtemp(prefix=f"drakit-{name}-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def made_once(folder: pathlib.Path, make: Callable[[pathlib.Path], object]) -> None:
    """Call ``make`` for a folder unless a process did so before; others wait meanwhile."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            make(folder)
            (folder / "whole").touch()


def text(key: str, make: Callable[[], str]) -> str:
    """Return a text that the first process of the run makes, named by ``key``."""
    place = folder(f"text-{hashlib.sha256(key.encode()).hexdigest()}")
    made_once(place, lambda place: (place / "text").write_text(make()))
    return (place / "text").read_text()
