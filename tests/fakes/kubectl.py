"""kubectl as a person runs it, with a kubeconfig and a home."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

import pytest

from fakes import waits

needed = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")


def run(kubeconfig: pathlib.Path, home: pathlib.Path, words: Sequence[str], *, text: str = "", code: int = 0) -> str:
    """Run a command that ends with a code, and return what it wrote. It ends before a collection of its garbage would pay."""
    environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"], "GOGC": "off"}
    done = subprocess.run(
        ["kubectl", *words], env=environment, input=text, capture_output=True, text=True, timeout=waits.SECONDS, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
