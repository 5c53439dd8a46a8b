"""One life of a NIC driver that attaches a sandbox and may be killed at a step; a program of its own, which forks so that a kill costs no import.

Commands come as JSON lines on standard input: ``node`` (the NIC's namespace), ``folder``, ``pod`` (the sandbox's namespace), and ``step``: where the
process kills itself by SIGKILL, counted from the attach's begin, or null. A step comes before and after every note, and after every request that
changes the kernel. The answer is one line: how the process ended, and how many steps it passed when it lived.
"""

import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable

from drakit.core import driver as drivers
from drakit.core import records
from drakit.devices.nic.attach import attacher, messages, sandboxes
from drakit.node import site as sites
from fakes import netns, nic_attach


class Killer:
    """Counts steps once it is armed, and kills this process at one of them."""

    def __init__(self, at: int | None) -> None:
        self.passed, self.armed = 0, False
        self._at = at

    def __call__(self) -> None:
        if self.armed:
            self.passed, step = self.passed + 1, self.passed
            if step == self._at:
                os.kill(os.getpid(), signal.SIGKILL)


class SteppingSite:
    """The node's site, whose notes are steps."""

    def __init__(self, site: sites.NodeSite, step: Callable[[], None]) -> None:
        self._site, self._step = site, step

    def __getattr__(self, name: str) -> object:
        return getattr(self._site, name)

    def note(self, grant: drivers.Grant[object], key: str, record: records.Record | None) -> None:
        self._step()
        self._site.note(grant, key, record)
        self._step()


def attach(command: dict[str, str], step: int | None) -> int:
    """Attach the sandbox to the one prepared claim's share; how many steps that took."""
    killer = Killer(step)
    world = nic_attach.World(netns.Namespace(command["node"]), pathlib.Path(command["folder"]))
    with world.driver(step=killer, start=False) as running:
        kernel = sandboxes.KernelSandboxes(command["node"], after_effect=killer)
        site: object = SteppingSite(running.local.site, killer)
        attaching = attacher.Attacher(running.machine, kernel, site, node=nic_attach.NODE)  # type: ignore[arg-type] # It passes all on.
        (grant,) = running.local.site.grants()
        request = messages.Request(claim=grant.claim.uid, device="nic0", share_id=grant.share_id, container="c1", sandbox="5a4d", pod="uid")
        with pathlib.Path(netns.Namespace(command["pod"]).path).open("rb") as space:
            killer.armed = True
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
            os.write(writer, str(attach(command, step)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        passed = told.read()
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "steps": int(passed or 0)}


if __name__ == "__main__":
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps(fork(wanted, wanted.pop("step"))), flush=True)  # noqa: T201 - the answer
