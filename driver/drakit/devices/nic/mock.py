"""A mock machine's NICs: interfaces from the machine's file, shares in a state file that outlives the driver.

The state file stands for the hardware: what is in it is installed, and stays so when the driver is killed. It is replaced whole and durably (fsync,
rename, fsync of the directory) under a lock file that processes share; shares of an earlier boot of the machine are forgotten, as a kernel would.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping

from drakit.core import errors
from drakit.devices import machines, tables
from drakit.devices.nic import port

_VERSION = "1"
_KEY = "nics"
_STATE = "nics.json"
_LOCK = "nics.lock"
_MEGA = 10**6


class MockPort:
    """The NICs of a mock machine in a directory of its own.

    ``after_effect`` is called with the name of a call between its effect and its answer, which is where a test dies. Raises SettingsError for a
    machine that is unknown or whose file is malformed, HardwareError when the state cannot be read or written.
    """

    def __init__(self, choice: machines.Choice, *, after_effect: Callable[[str], None] = lambda _: None) -> None:
        self._machine = choice.name
        self._interfaces = from_machine(machines.load(choice.name))
        self._directory = choice.directory
        self._after_effect = after_effect
        machines.boot_id(self._directory)

    def interfaces(self) -> tuple[port.Interface, ...]:
        return self._interfaces

    def interface(self, name: str) -> port.Interface | None:
        return next((item for item in self._interfaces if item.name == name), None)

    def install(self, share: port.Share) -> None:
        if self.interface(share.interface) is None:
            raise errors.HardwareError("install", f"no interface {share.interface!r}")
        self._change("install", lambda held: {**held, share.id: share})

    def remove(self, share_id: str) -> None:
        self._change("remove", lambda held: {key: share for key, share in held.items() if key != share_id})

    def shares(self) -> tuple[port.Share, ...]:
        with self._locked("shares"):
            held = self._read()
        return tuple(held[key] for key in sorted(held))

    def _change(self, call: str, change: Callable[[Mapping[str, port.Share]], Mapping[str, port.Share]]) -> None:
        with self._locked(call):
            held = self._read()
            wanted = change(held)
            if wanted != held:
                self._write(wanted)
        self._after_effect(call)

    @contextlib.contextmanager
    def _locked(self, call: str) -> Iterator[None]:
        """Hold the machine's lock; what goes wrong with its files is a HardwareError of the call."""
        try:
            descriptor = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except (OSError, ValueError, errors.SettingsError) as error:
            raise errors.HardwareError(call, f"the mock machine's state: {error}") from error

    def _read(self) -> Mapping[str, port.Share]:
        file = self._directory / _STATE
        if not file.exists():
            return {}
        top = tables.Table(json.loads(file.read_text("utf-8")), f"{file.name}: ")
        top.choice("version", [_VERSION])
        top.choice("machine", [self._machine])
        boot_id, rows = top.text("bootID"), top.rows("shares")
        top.close()
        if boot_id != machines.boot_id(self._directory):
            return {}
        return {share.id: share for share in map(_share, rows)}

    def _write(self, held: Mapping[str, port.Share]) -> None:
        rows = [dataclasses.asdict(held[key]) for key in sorted(held)]
        document = {"version": _VERSION, "machine": self._machine, "bootID": machines.boot_id(self._directory), "shares": rows}
        _replace(self._directory / _STATE, json.dumps(document, indent=1).encode())


def from_machine(machine: machines.Machine) -> tuple[port.Interface, ...]:
    """The interfaces a machine's file lists, if any, numbered from 2 (1 is lo's, which no file lists); raises SettingsError."""
    part = machine.family(_KEY)
    rows = part.optional(_KEY, part.rows) or ()
    return tuple(_interface(index, row) for index, row in enumerate(rows, start=2))


def _interface(index: int, row: tables.Table) -> port.Interface:
    speed = row.optional("speedMbps", lambda field: row.integer(field, least=1))
    carrier = row.optional("carrier", row.flag)
    linked = carrier is not False
    found = port.Interface(
        ifindex=index,
        name=row.text("name"),
        mac=row.text("mac").lower(),
        mtu=row.integer("mtu", least=68),
        driver=row.text("driver"),
        speed=speed * _MEGA if speed is not None and linked else None,
        carrier=linked,
        state="up" if linked else "down",
        pci=port.PciFunction(
            bus_id=row.text("pciBusID").lower(),
            root=row.optional("pcieRoot", row.text) or "",
            numa_node=row.optional("numaNode", row.integer),
        ),
        default_route=row.optional("defaultRoute", row.flag) or False,
    )
    row.close()
    return found


def _share(row: tables.Table) -> port.Share:
    found = port.Share(
        id=row.text("id"),
        interface=row.text("interface"),
        ifindex=row.integer("ifindex", least=1),
        mac=row.text("mac"),
        bandwidth=row.integer("bandwidth", least=1),
    )
    row.close()
    return found


def _replace(file: pathlib.Path, content: bytes) -> None:
    """Make the file hold exactly this, durably, or leave it as it was; the caller holds the lock, so one name for the new file is enough."""
    fresh = file.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
