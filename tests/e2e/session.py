"""What checks work with: the cluster, drakit, and the commands that were given for what no API does."""

import dataclasses
import subprocess

import pytest

from e2e.api import Api
from e2e.driver import Driver
from e2e.gates import Gates
from e2e.workspace import Workspace

HOOKS = ("restart-kubelet", "restart-runtime", "stop-api", "start-api", "load-image")
_HOOK_SECONDS = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the suite."""

    api: Api
    driver: Driver
    space: Workspace
    gates: Gates


class Hooks:
    """Commands that do to the cluster what no API does."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(self, name: str, *words: str) -> None:
        """Run the command of one hook, with words after it; raise AssertionError where it fails."""
        command = self._config.getoption(f"--hook-{name}")
        ran = subprocess.run(
            ["sh", "-c", f'{command} "$@"', name, *words], capture_output=True, text=True, timeout=_HOOK_SECONDS, check=False
        )
        assert ran.returncode == 0, f"hook {name}: {ran.stdout}{ran.stderr}"
