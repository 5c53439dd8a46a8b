"""The order of the demo on a real interface: what an earlier one left is put back; then judged, noted, shared, shown, and put back again."""

import contextlib
import dataclasses
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator

import rich.console

from drakit.cli import local_cluster, process
from drakit.cli.demo import driver_process, stage
from drakit.cli.demo.nic import chapters, ground, note, portrait, restoring, scene
from drakit.core import errors
from drakit.devices.nic import kernel_port
from drakit.devices.nic.netlink import rtnetlink
from drakit.telemetry import logs

SHOWN: tuple[Callable[[scene.Scene], None], ...] = (
    chapters.offer,
    chapters.ask,
    chapters.prepare,
    chapters.attach,
    chapters.send,
    chapters.lower,
    chapters.send,
)
_FAILURES = (errors.DrakitError, OSError, subprocess.SubprocessError)
_LOOK_SECONDS = 0.2


@dataclasses.dataclass(kw_only=True)
class _Ending:
    """What the end of a demo found: what is not as it was, and why it did not go well."""

    left: portrait.Lines = ()
    failure: Exception | None = None


def play(wish: ground.Wish, out: rich.console.Console) -> int:
    """Show everything, or only restore; returns the exit status. Raises SettingsError before anything begins, HardwareError."""
    ground.check_rights()
    machine = kernel_port.KernelPort()
    try:
        with process.interruptible(), contextlib.closing(machine), _alone(wish, machine) as place:
            return _play(wish, place, machine, out)
    except KeyboardInterrupt:
        out.print(f"\nInterrupted. {_how_it_is(wish)}", markup=False)
        return process.INTERRUPTED


@contextlib.contextmanager
def _alone(wish: ground.Wish, machine: kernel_port.KernelPort) -> Iterator[note.Place]:
    """The interface and the place, and nobody else on either; where nothing is left to remember, the place goes in the end."""
    place = wish.place
    found, earlier = machine.interface(wish.interface), place.read()
    if found is None and earlier is None:
        ground.find(machine, wish.interface)
    number = found.ifindex if found is not None else earlier.ifindex if earlier else 0
    with note.alone_on(wish.interface, number), note.held(place):
        try:
            yield place
        finally:
            if not place.file.exists():
                place.leave()


def _play(wish: ground.Wish, place: note.Place, machine: kernel_port.KernelPort, out: rich.console.Console) -> int:
    told = stage.Stage(out, chapters=chapters.COUNT)
    logs.setup(level=logs.Level.NOTHING, style=logs.Style.CONSOLE)
    earlier = place.read()
    if earlier is not None:
        told.say(f"An earlier demo on {earlier.interface} (pid {earlier.pid}) was killed. What it changed is put back first.")
        left = restoring.restore(place, earlier, machine)
        place.clear()
        _tell_left(told, earlier.interface, left)
    elif wish.restore:
        told.say(f"No demo has left anything on {wish.interface}: there is no {place.file}.")
    if wish.restore:
        return 0
    return _perform(wish, place, machine, told, out)


def _perform(wish: ground.Wish, place: note.Place, machine: kernel_port.KernelPort, told: stage.Stage, out: rich.console.Console) -> int:
    found = ground.survey(machine, wish)
    place.check()
    place.clear()
    written = _noted(found)
    act = scene.Scene(
        stage=told,
        wish=wish,
        ground=found,
        written=written,
        place=place,
        machine=machine,
        driver=scene.Driver(place, wish.interface, found.figures),
    )
    chapters.announce(act)
    ending = _Ending()
    try:
        with local_cluster.logging_to(place.log):
            _show_and_put_back(act, ending)
    except KeyboardInterrupt:
        if ending.left:
            _tell_left(told, wish.interface, ending.left)
        raise
    if ending.failure is not None:
        _tell_failure(act, ending, out)
        return 1
    return _end(act, ending, out)


def _noted(found: ground.Ground) -> note.Note:
    interface = found.interface
    with rtnetlink.Socket.open() as sock:
        lines = portrait.read(sock, interface.ifindex)
    return note.Note(
        interface=interface.name,
        ifindex=interface.ifindex,
        mac=interface.mac,
        cookie=restoring.cookie(),
        boot=scene.boot_id(),
        pid=os.getpid(),
        lines=lines,
    )


def _show_and_put_back(act: scene.Scene, ending: _Ending) -> None:
    """All chapters; and whatever ends them, the interface as it was. A signal counts until the putting back begins, and not from then on."""
    try:
        try:
            _show(act)
        except _FAILURES as error:
            ending.failure = error
        finally:
            process.ignore()
    finally:
        _close(act)
        ending.left = restoring.restore(act.place, act.written, act.machine) if act.place.file.exists() else ()


def _show(act: scene.Scene) -> None:
    chapters.remember(act)
    for chapter in SHOWN:
        chapter(act)
    if act.wish.keep:
        _keep(act)


def _close(act: scene.Scene) -> None:
    """The pods end, then the driver; whatever is wrong with them, it does not keep the interface from being put back."""
    for close in (*(pod.close for pod in act.living.values()), act.driver.stop):
        with contextlib.suppress(Exception):
            close()


def _keep(act: scene.Scene) -> None:
    """Leave the shares up until Ctrl-C."""
    told = act.stage
    told.chapterless("The shares stay up until Ctrl-C.")
    link = shlex.quote(act.name)
    told.show(
        [
            f"tc -s class show dev {link}",
            f"tc -s class show dev drb{act.written.ifindex}",
            *(f"nsenter --net={pod.namespace} ip address    # pod {name}" for name, pod in act.living.items()),
            f"tail -f {shlex.quote(str(act.place.log))}",
        ]
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_LOOK_SECONDS)


def _end(act: scene.Scene, ending: _Ending, out: rich.console.Console) -> int:
    told = act.stage
    told.chapter("All of it is taken away, and the interface is as it was")
    told.show(act.written.lines)
    try:
        told.check(f"the kernel says of {act.name} what it said before: link, addresses, routes, queueing, filters", ending.left, ())
        told.check("no share is left", act.shares_left(), 0)
        told.check("the note is gone", act.place.file.exists(), wanted=False)
    except stage.DemoError as error:
        ending.failure = error
        _tell_failure(act, ending, out)
        return 1
    told.chapterless(f"All {told.checks} checks held, in {told.seconds:.1f} s.")
    if not act.wish.traffic:
        told.say("No frame was sent. To see the rates held under load, add --traffic: it sends for a few seconds on the real network.")
    return 0


def _tell_failure(act: scene.Scene, ending: _Ending, out: rich.console.Console) -> None:
    out.print(f"\nFAILED: {ending.failure}", markup=False, style="bold red", soft_wrap=True)
    lines = driver_process.tail(act.place.log)
    if lines:
        out.print(f"\nThe end of {act.place.log.name}:", markup=False)
        out.print("\n".join(f"  {line}" for line in lines), markup=False, soft_wrap=True)
    out.print()
    _tell_left(act.stage, act.name, ending.left)


def _tell_left(told: stage.Stage, interface: str, left: portrait.Lines) -> None:
    if not left:
        told.say(f"{interface} is as it was.")
        return
    told.say(f"What the demo changed of {interface} is put back. This is not as it was, and was changed by somebody else:", style="yellow")
    told.show(left)


def _how_it_is(wish: ground.Wish) -> str:
    """For somebody who interrupted: whether anything of the demo's is left."""
    if wish.place.file.exists():
        return f"Not all of it is put back; to do so: drakit demo --nic {wish.interface} --restore"
    return f"Nothing of the demo is left on {wish.interface}."
