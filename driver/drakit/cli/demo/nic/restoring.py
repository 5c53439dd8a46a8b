"""The interface as the note says it was: at the end of a demo, and at the next start after one that was killed.

Idempotent, and right from any state: a demo may have died between any two steps. Nothing is printed, because nobody may be listening any more. Only
what the demo makes is taken away; what others changed meanwhile is told, not touched.
"""

import time

from drakit.cli.commands import prepare
from drakit.cli.demo.nic import note, portrait, scene
from drakit.core import errors
from drakit.devices.nic import kernel_port, port
from drakit.devices.nic.netlink import rtnetlink
from drakit.devices.nic.shaping import parts
from drakit.node import local_node
from drakit.telemetry import logs

PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_log = logs.get_logger(__name__)


def restore(place: note.Place, found: note.Note, machine: kernel_port.KernelPort) -> portrait.Lines:
    """Make it so, forget the note, and say what is still different, which is others' doing. Raises DrakitError; then the note stays.

    The kernel destroys namespaces in its own time, so equality is waited for, but not for ever.
    """
    left = _restored(place, found, machine) if _is_here(found, place) else ()
    place.forget()
    return left


def _restored(place: note.Place, found: note.Note, machine: kernel_port.KernelPort) -> portrait.Lines:
    failure = _failure_of_giving_back(place, found)
    machine.repair(port.Uplink(interface=found.interface, ifindex=found.ifindex, mac=found.mac, speed=0), ())
    left = _settled(found)
    with rtnetlink.Socket.open() as sock:
        if parts.find(sock, found.ifindex).any_of_ours:
            raise errors.HardwareError("restore", f"{found.interface} still has parts of the demo's: {'; '.join(left)}")
    if left and failure is not None:
        raise failure
    return left


def _failure_of_giving_back(place: note.Place, found: note.Note) -> Exception | None:
    """What kept the claims from being given back: the interface is emptied all the same, even where the journal is damaged or the disk is full."""
    try:
        _give_back(place, found)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the memory, the interface is put back
        _log.warning("claims could not be given back", error=str(error))
        return error
    return None


def _is_here(found: note.Note, place: note.Place) -> bool:
    """Whether there can be anything to undo: nothing of it outlives a boot. Raises SettingsError where the interface is in another namespace."""
    if found.boot != scene.boot_id():
        return False
    if found.cookie != cookie():
        reason = f"it is of an interface {found.interface} of another network namespace; restore it there, or, where that is gone, remove the file"
        raise errors.SettingsError(reason, key=str(place.file))
    return True


def cookie() -> int:
    """The cookie of this network namespace; 0 where the kernel has none (before Linux 5.14)."""
    try:
        with rtnetlink.Socket.open() as sock:
            return sock.cookie
    except OSError:
        return 0


def _give_back(place: note.Place, found: note.Note) -> None:
    """Unprepare every claim that the journal knows."""
    family = scene.family(place, found.interface)
    with local_node.LocalNode.open(family.spec, family.folders, prepare.Nowhere()) as opened:
        refs = [entry.claim for entry in opened.journal.entries()]
        for uid, error in opened.engine.unprepare(refs, prepare.Present()).items():
            if error:
                raise errors.HardwareError("restore", f"claim {uid}: {error}")


def _settled(found: note.Note) -> portrait.Lines:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with rtnetlink.Socket.open() as sock:
            left = portrait.differences(found.lines, portrait.read(sock, found.ifindex))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_LOOK_SECONDS)
