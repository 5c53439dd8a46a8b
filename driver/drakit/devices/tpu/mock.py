"""A mock node's chips: who has them is kept in a file that outlives the driver, as hardware does.

The file is replaced whole and durably under a lock that processes share; what was attached in an earlier boot of the machine is forgotten.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

from drakit.core import errors
from drakit.devices import machines, tables
from drakit.devices.tpu import driver

_STATE = "tpus.json"
_LOCK = "tpus.lock"
# Guessed: numbers of the accel class are assigned when its driver is loaded.
_MAJOR = 261


class MockChips:
    """``port.Port`` on the directory of a mock machine; ``after_effect`` is called between an effect and its answer, which is where a test dies."""

    def __init__(self, directory: pathlib.Path, count: int, *, after_effect: Callable[[str], None] = lambda _: None) -> None:
        self._directory = directory
        self._count = count
        self._after_effect = after_effect
        machines.boot_id(directory)

    def chips(self) -> tuple[driver.Chip, ...]:
        return tuple(driver.Chip(path=f"/dev/accel{minor}", major=_MAJOR, minor=minor) for minor in range(self._count))

    def user(self) -> str:
        """Return who has the chips, empty where nobody does."""
        with self._locked("user"):
            return self._read()

    def attach(self, user: str) -> None:
        with self._locked("attach"):
            held = self._read()
            if held not in ("", user):
                raise errors.DeviceBusyError(f"the chips of this node are attached to {held}")
            if not held:
                self._write(user)
        self._after_effect("attach")

    def detach(self, user: str) -> None:
        with self._locked("detach"):
            if self._read() == user:
                self._write("")
        self._after_effect("detach")

    @contextlib.contextmanager
    def _locked(self, call: str) -> Iterator[None]:
        """Hold the machine's lock; what goes wrong with its files is a HardwareError of the call."""
        try:
            with machines.locked(self._directory, _LOCK):
                yield
        except (OSError, ValueError, errors.SettingsError) as error:
            raise errors.HardwareError(call, f"the mock machine's state: {error}") from error

    def _read(self) -> str:
        file = self._directory / _STATE
        if not file.exists():
            return ""
        top = tables.Table(json.loads(file.read_text("utf-8")), f"{file.name}: ")
        boot, user = top.text("bootID"), top.maybe_empty("user")
        top.close()
        return user if boot == machines.boot_id(self._directory) else ""

    def _write(self, user: str) -> None:
        machines.rewrite(self._directory / _STATE, json.dumps({"bootID": machines.boot_id(self._directory), "user": user}))
