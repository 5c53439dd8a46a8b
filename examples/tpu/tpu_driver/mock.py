"""A mock node's chips. A file has their user, and outlives the driver as hardware does.

The file is replaced durably under a lock that processes share. A user of an earlier boot of the machine no longer counts.
"""

import drakit
import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

from drakit import machines, tables
from tpu_driver import driver

_STATE = "tpus.json"
_LOCK = "tpus.lock"
# Guessed: numbers of the accel class are assigned when its driver is loaded.
_MAJOR = 261


class MockChips:
    """``port.Port`` on the directory of a mock machine; tests use ``after_effect`` to die between an effect and its answer."""

    def __init__(self, directory: pathlib.Path, count: int, *, after_effect: Callable[[str], None] = lambda _: None) -> None:
        self._directory = directory
        self._count = count
        self._after_effect = after_effect
        machines.boot_id(directory)

    def chips(self) -> tuple[driver.Chip, ...]:
        return tuple(driver.Chip(path=f"/dev/accel{minor}", major=_MAJOR, minor=minor) for minor in range(self._count))

    def user(self) -> str:
        """Return the user of the chips, empty if there is none."""
        with self._locked("user"):
            return self._read()

    def attach(self, user: str) -> None:
        with self._locked("attach"):
            holder = self._read()
            if holder not in ("", user):
                raise drakit.DeviceBusyError(f"the chips of this node are attached to {holder}")
            if not holder:
                self._write(user)
        self._after_effect("attach")

    def detach(self, user: str) -> None:
        with self._locked("detach"):
            if self._read() == user:
                self._write("")
        self._after_effect("detach")

    @contextlib.contextmanager
    def _locked(self, call: str) -> Iterator[None]:
        """Hold the machine's lock. An error of its files becomes a HardwareError of the call."""
        try:
            with machines.locked(self._directory, _LOCK):
                yield
        except (OSError, ValueError, drakit.SettingsError) as error:
            raise drakit.HardwareError(call, f"the mock machine's state: {error}") from error

    def _read(self) -> str:
        file = self._directory / _STATE
        if not file.exists():
            return ""
        top = tables.Table(json.loads(machines.read_bytes(file)), f"{file.name}: ")
        boot, user = top.text("bootID"), top.maybe_empty("user")
        top.close()
        return user if boot == machines.boot_id(self._directory) else ""

    def _write(self, user: str) -> None:
        machines.rewrite(self._directory / _STATE, json.dumps({"bootID": machines.boot_id(self._directory), "user": user}))
