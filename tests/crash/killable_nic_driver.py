"""One life of a NIC driver that does one thing and may be killed at a step; a program of its own, which forks so that a kill costs no import.

Commands come as JSON lines on standard input: ``act`` (``attach``, ``prepare`` or ``unprepare``), ``form`` (what the claim asks for), ``node`` (the
NIC's namespace), ``folder``, for an attach ``pod`` (the sandbox's namespace), and ``step``: where the process kills itself by SIGKILL, or null. The
first step comes before anything is done, one more after every request that changes the kernel, every change of the journal and of the CDI directory,
and every note; so each of them is once the last thing that happened, and once the first that did not. The answer is one line: how the process ended,
and how many steps it passed when it lived.
"""

import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyroute2  # noqa: F401 - loaded before the first fork

from drakit import machines
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import ports, records
from drakit.node import driver_context, engine, local_node
from drakit_nic import driver as nic_driver
from drakit_nic import mock_port
from drakit_nic import options as nic_options
from drakit_nic.attach import attacher, hook_program, sandboxes, server
from drakit_nic.passthrough import sriov
from drakit_nic.shaping import kernel_shares
from fakes import claim_source, netns, nic_attach

OPAQUE: records.Record = {"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}
FUNCTION = sriov.Function(parent="eth1", number=3)
FRESH = sriov.Settings(mac="02:d9:a1:00:10:00")
HELD = sriov.Settings(mac="02:d9:a1:00:10:00", min_rate=10**9, max_rate=10**9)
MACHINE = """
name: functions
description: one NIC with one virtual function
nics:
- {name: eth1, mac: "02:d9:a1:00:00:01", mtu: 9000, speedMbps: 100000, pciBusID: "0000:0c:00.0", driver: mlx5_core, virtualFunctions: 8}
- {name: eth1v0, mac: "02:d9:a1:00:10:00", mtu: 1500, speedMbps: 100000, pciBusID: "0000:0c:00.2", driver: mlx5_core,
   physicalFunction: "0000:0c:00.0", functionNumber: 3}
"""
_COUNTED = frozenset({"journal", "cdi", "device_prepare", "device_unprepare"})


class Killer(ports.Unmeasured):
    """Counts the steps of the main thread once it is armed, and kills this process at one of them. As a meter it hears of journal and CDI files."""

    def __init__(self, at: int | None) -> None:
        self.passed, self.armed = 0, False
        self._at = at

    def __call__(self) -> None:
        if self.armed and threading.current_thread() is threading.main_thread():
            self.passed, step = self.passed + 1, self.passed
            if step == self._at:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        try:
            yield
        finally:
            if phase in _COUNTED:
                self()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """What is done here has steps."""
        self.armed = True
        self()
        yield
        self.armed = False


class SteppingSite:
    """The node's context, whose notes are steps."""

    def __init__(self, context: driver_context.NodeDriverContext, step: Callable[[], None]) -> None:
        self._context, self._step = context, step

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def set_state(self, grant: drivers.Grant[object], key: str, record: records.Record | None) -> None:
        self._context.set_state(grant, key, record)
        self._step()


class Functions(mock_port.MockPort):
    """A mock machine with one virtual function, each change of which is a step."""

    def __init__(self, choice: machines.Choice, step: Callable[[], None]) -> None:
        super().__init__(choice)
        self._step = step

    def set_function(self, of: sriov.Function, wanted: sriov.Settings) -> None:
        super().set_function(of, wanted)
        self._step()


def world_of(node: str, folder: pathlib.Path) -> nic_attach.World:
    """The node of all forms but the virtual function: its NIC is offered shared and whole."""
    options = dataclasses.replace(nic_attach.OPTIONS, whole=("nic0",), offer_addressed=True)
    return nic_attach.World(netns.Namespace(node), folder, options)


def claim_of(form: str) -> claims.Claim:
    """The claim of a form: one ``share``, a ``pair`` of shares, the ``whole`` interface, or the ``function`` of the mock machine."""
    if form == "pair":
        return nic_attach.claim(1, shares=2)
    shared = nic_attach.claim(1, parameters=OPAQUE)
    if form == "share":
        return shared
    (result,) = shared.results
    if form == "whole":
        return dataclasses.replace(shared, results=(dataclasses.replace(result, device="nic0-whole", share_id=None, consumed_capacity={}),))
    return dataclasses.replace(shared, results=(dataclasses.replace(result, device="pci-0000-0c-00-2-whole"),), configs=())


def machine_of(folder: pathlib.Path, step: Callable[[], None] = lambda: None) -> Functions:
    """The mock machine of a folder."""
    file = folder / "machine.yaml"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(MACHINE)
    return Functions(machines.Choice(name=str(file), directory=folder / "machine"), step)


@contextlib.contextmanager
def function_driver(folder: pathlib.Path, killer: Killer | None = None) -> Iterator[local_node.LocalNode]:
    """One life of a driver on the mock machine."""
    machine = machine_of(folder, killer or (lambda: None))
    rule = nic_options.NicRule(match="eth1v0", speed=nic_attach.BITS("50G"))
    options = nic_options.NicOptions(whole=("eth1v0",), rules=(rule,))

    def build(intents: local_node.Intents) -> Any:
        return nic_driver.NicDriver(machine, node=nic_attach.NODE, options=options, intents=intents)

    identity = engine.NodeIdentity(pool=nic_attach.NODE, boot_id=machines.boot_id(folder / "machine"))
    spec = local_node.DriverSpec(driver_name=nic_driver.NAME, build=build, identity=identity)
    folders = local_node.Folders(home=folder / "home", cdi=folder / "cdi")
    with local_node.LocalNode.open(spec, folders, claim_source.FakeClaimSource(claim_of("function")), killer) as local:
        local.offered.refresh()
        yield local


def call(local: local_node.LocalNode, act: str, wanted: claims.Claim) -> str:
    """One call of the kubelet's; the error."""
    if act == "unprepare":
        return local.engine.unprepare([wanted.ref], nic_attach.Waiting())[wanted.ref.uid]
    return local.engine.prepare([wanted.ref], nic_attach.Waiting())[wanted.ref.uid].error


def live(command: dict[str, str], step: int | None) -> int:
    """One life; how many steps it passed."""
    killer, wanted, folder = Killer(step), claim_of(command["form"]), pathlib.Path(command["folder"])
    if command["form"] == "function":
        with function_driver(folder, killer) as local, killer.watching():
            error = call(local, command["act"], wanted)
    elif command["act"] == "attach":
        return attach(command, killer)
    else:
        world = world_of(command["node"], folder)
        world.source.put(wanted)
        with world.driver(step=killer, meter=killer) as running, killer.watching():
            error = call(running.local, command["act"], wanted)
    assert not error, error
    return killer.passed


def attach(command: dict[str, str], killer: Killer) -> int:
    """Attach the sandbox to the one prepared claim's share; how many steps that took."""
    world = world_of(command["node"], pathlib.Path(command["folder"]))
    with world.driver(step=killer, start=False) as running:
        kernel = sandboxes.KernelSandboxes(command["node"], after_effect=killer)
        context: object = SteppingSite(running.local.context, killer)
        attaching = attacher.Attacher(running.machine, kernel, context, node=nic_attach.NODE)  # type: ignore[arg-type] # It passes all on.
        (grant,) = running.local.context.grants()
        request = server.Request(claim=grant.claim.uid, device="nic0", share_id=grant.share_id, container="c1", sandbox="5a4d", pod="uid")
        with pathlib.Path(netns.Namespace(command["pod"]).path).open("rb") as space, killer.watching():
            attaching.attach(request, space.fileno(), lambda: True)
    return killer.passed


def fork(command: dict[str, str], step: int | None) -> dict[str, object]:
    """Run one life in a child, and say how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            os.write(writer, str(live(command, step)).encode())
            code = 0
        except Exception:  # noqa: BLE001 - told to whoever reads the test's output
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as reported:
        passed = reported.read()
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "steps": int(passed or 0)}


if __name__ == "__main__":
    hook_program.program()
    kernel_shares.KernelShares().shaping()
    gc.freeze()  # A life does not go through what was imported.
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps(fork(wanted, wanted.pop("step"))), flush=True)  # noqa: T201 - the answer
