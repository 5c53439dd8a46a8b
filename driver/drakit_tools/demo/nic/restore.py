"""Restores the interface to its saved state: at the end of a demo, and at the next start after a demo that was killed.

It is idempotent and correct from any state, because a demo may have died between any two steps. It prints nothing, because the terminal may be gone.
It removes only what the demo makes, and reports what other programs changed.
"""

import time

from drakit.cli import views
from drakit.cli.commands import prepare
from drakit.core import errors
from drakit.node import local_node
from drakit.telemetry import logs
from drakit_nic import kernel_port, port
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import parts
from drakit_tools.demo.nic import interface_state, saved_state, scene

PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_log = logs.get_logger(__name__)


def restore(place: saved_state.StateFolder, saved: saved_state.SavedState, machine: kernel_port.KernelPort) -> interface_state.Lines:
    """Restore the interface, remove the saved state, and return the differences that other programs made. Raises DrakitError; then the state stays.

    It waits a bounded time for equality, because the kernel destroys namespaces asynchronously.
    """
    left = _restored(place, saved, machine) if _is_here(saved, place) else ()
    place.remove()
    return left


def _restored(place: saved_state.StateFolder, saved: saved_state.SavedState, machine: kernel_port.KernelPort) -> interface_state.Lines:
    failure = _unprepare_error(place, saved)
    machine.repair(port.Uplink(interface=saved.interface, ifindex=saved.ifindex, mac=saved.mac, speed=0), ())
    left = _settled(saved)
    with rtnetlink.Socket.open() as sock:
        if parts.find(sock, saved.ifindex).any_of_ours:
            raise errors.HardwareError("restore", f"{saved.interface} still has changes of the demo: {'; '.join(left)}")
    if left and failure is not None:
        raise failure
    return left


def _unprepare_error(place: saved_state.StateFolder, saved: saved_state.SavedState) -> Exception | None:
    """Unprepare the claims; return the error, if any. The interface is emptied even if the journal is damaged or the disk is full."""
    try:
        _unprepare_all(place, saved)
    except Exception as error:  # noqa: BLE001 - the interface is restored whatever is wrong with the journal
        _log.warning("unprepare failed", error=str(error))
        return error
    return None


def _is_here(saved: saved_state.SavedState, place: saved_state.StateFolder) -> bool:
    """Return whether there can be anything to undo; a reboot removes it all. Raises SettingsError if the interface is in another namespace."""
    if saved.boot != scene.boot_id():
        return False
    if saved.cookie != cookie():
        reason = (
            f"belongs to {saved.interface} in another network namespace; run --restore there, or remove the file if that namespace is gone"
        )
        raise errors.SettingsError(reason, key=str(place.file))
    return True


def cookie() -> int:
    """Return the cookie of this network namespace; 0 if the kernel has none (before Linux 5.14)."""
    try:
        with rtnetlink.Socket.open() as sock:
            return sock.cookie
    except OSError:
        return 0


def _unprepare_all(place: saved_state.StateFolder, saved: saved_state.SavedState) -> None:
    """Unprepare every claim in the journal."""
    family = scene.family(place, saved.interface)
    with local_node.LocalNode.open(family.spec, family.folders, views.Nowhere()) as opened:
        refs = [entry.claim for entry in opened.journal.entries()]
        for uid, error in opened.engine.unprepare(refs, prepare.Present()).items():
            if error:
                raise errors.HardwareError("restore", f"claim {uid}: {error}")


def _settled(saved: saved_state.SavedState) -> interface_state.Lines:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with rtnetlink.Socket.open() as sock:
            left = interface_state.differences(saved.lines, interface_state.read(sock, saved.ifindex))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_LOOK_SECONDS)
