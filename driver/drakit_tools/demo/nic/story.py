"""The order of the demo on a real interface: restore after an earlier demo, check, save the state, share and show, restore."""

import contextlib
import dataclasses
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator

import rich.console

from drakit.cli import output, process
from drakit.core import errors
from drakit.telemetry import logs
from drakit_nic import kernel_port
from drakit_nic.netlink import rtnetlink
from drakit_tools import local_cluster
from drakit_tools.demo import driver_process, stage
from drakit_tools.demo.nic import chapters, eligibility_check, interface_state, restore, saved_state, scene

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
    """The end of a demo: the differences that are left, and the error if there was one."""

    left: interface_state.Lines = ()
    failure: Exception | None = None


def play(options: eligibility_check.DemoOptions, out: rich.console.Console) -> int:
    """Run the demo, or only restore; returns the exit status. Raises SettingsError before anything starts, HardwareError."""
    eligibility_check.check_rights()
    machine = kernel_port.KernelPort()
    try:
        with process.interruptible(), contextlib.closing(machine), _alone(options, machine) as place:
            return _play(options, place, machine, out)
    except KeyboardInterrupt:
        output.problems().print(f"\nInterrupted. {_how_it_is(options)}", markup=False)
        return process.INTERRUPTED


@contextlib.contextmanager
def _alone(options: eligibility_check.DemoOptions, machine: kernel_port.KernelPort) -> Iterator[saved_state.StateFolder]:
    """Lock the interface and the folder; remove the folder at the end unless it holds a saved state."""
    place = options.place
    interface, earlier = machine.interface(options.interface), place.read()
    if interface is None and earlier is None:
        eligibility_check.find(machine, options.interface)
    number = interface.ifindex if interface is not None else earlier.ifindex if earlier else 0
    with saved_state.alone_on(options.interface, number), saved_state.held(place):
        try:
            yield place
        finally:
            if not place.file.exists():
                place.leave()


def _play(
    options: eligibility_check.DemoOptions, place: saved_state.StateFolder, machine: kernel_port.KernelPort, out: rich.console.Console
) -> int:
    out_stage = stage.Stage(out, chapters=chapters.COUNT)
    logs.setup(level=logs.Level.NOTHING, style=logs.Style.CONSOLE)
    earlier = place.read()
    if earlier is not None:
        out_stage.say(f"An earlier demo on {earlier.interface} (pid {earlier.pid}) was killed. Its changes are removed first.")
        left = restore.restore(place, earlier, machine)
        place.clear()
        _tell_left(out_stage, earlier.interface, left)
    elif options.restore:
        out_stage.say(f"Nothing to restore on {options.interface}: {place.file} does not exist.")
    if options.restore:
        return 0
    return _perform(options, place, machine, out_stage)


def _perform(
    options: eligibility_check.DemoOptions,
    place: saved_state.StateFolder,
    machine: kernel_port.KernelPort,
    out_stage: stage.Stage,
) -> int:
    surveyed = eligibility_check.survey(machine, options)
    place.check()
    place.clear()
    written = _noted(surveyed)
    act = scene.Scene(
        stage=out_stage,
        options=options,
        checked=surveyed,
        written=written,
        place=place,
        machine=machine,
        driver=scene.Driver(place, options.interface, surveyed.figures),
    )
    chapters.announce(act)
    ending = _Ending()
    try:
        with local_cluster.logging_to(place.log):
            _show_and_put_back(act, ending)
    except KeyboardInterrupt:
        if ending.left:
            _tell_left(stage.Stage(output.problems(), chapters=0), options.interface, ending.left)
        raise
    if ending.failure is not None:
        _tell_failure(act, ending)
        return 1
    return _end(act, ending)


def _noted(surveyed: eligibility_check.CheckedInterface) -> saved_state.SavedState:
    interface = surveyed.interface
    with rtnetlink.Socket.open() as sock:
        lines = interface_state.read(sock, interface.ifindex)
    return saved_state.SavedState(
        interface=interface.name,
        ifindex=interface.ifindex,
        mac=interface.mac,
        cookie=restore.cookie(),
        boot=scene.boot_id(),
        pid=os.getpid(),
        lines=lines,
    )


def _show_and_put_back(act: scene.Scene, ending: _Ending) -> None:
    """Run all chapters, then restore the interface however they end. Signals are ignored once the restore has begun."""
    try:
        try:
            _show(act)
        except _FAILURES as error:
            ending.failure = error
        finally:
            process.ignore()
    finally:
        _close(act)
        ending.left = restore.restore(act.place, act.written, act.machine) if act.place.file.exists() else ()


def _show(act: scene.Scene) -> None:
    chapters.remember(act)
    for chapter in SHOWN:
        chapter(act)
    if act.options.keep:
        _keep(act)


def _close(act: scene.Scene) -> None:
    """Stop the pods, then the driver; their errors do not prevent the restore."""
    for close in (*(pod.close for pod in act.living.values()), act.driver.stop):
        with contextlib.suppress(Exception):
            close()


def _keep(act: scene.Scene) -> None:
    """Keep the shares until Ctrl-C."""
    out_stage = act.stage
    out_stage.chapterless("The shares stay until Ctrl-C.")
    link = shlex.quote(act.name)
    out_stage.commands(
        f"tc -s class show dev {link}",
        f"tc -s class show dev drb{act.written.ifindex}",
        *(f"nsenter --net={pod.namespace} ip address    # pod {name}" for name, pod in act.living.items()),
        f"tail -f {shlex.quote(str(act.place.log))}",
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_LOOK_SECONDS)


def _end(act: scene.Scene, ending: _Ending) -> int:
    out_stage = act.stage
    out_stage.chapter("Everything is removed, and the interface is restored")
    out_stage.lines(*act.written.lines)
    try:
        out_stage.check(f"{act.name} is restored: link, addresses, routes, queueing disciplines, filters", ending.left, ())
        out_stage.check("no share is left", act.shares_left(), 0)
        out_stage.check("the saved state is removed", act.place.file.exists(), wanted=False)
    except stage.DemoError as error:
        ending.failure = error
        _tell_failure(act, ending)
        return 1
    out_stage.chapterless(f"All {out_stage.checks} checks held, in {out_stage.seconds:.1f} s.")
    if not act.options.traffic:
        out_stage.say("No frame was sent. To see the rates under load, add --traffic: it sends for a few seconds on the real network.")
    return 0


def _tell_failure(act: scene.Scene, ending: _Ending) -> None:
    out = output.problems()
    out.print()
    output.say(out, f"FAILED: {ending.failure}", style="bold red")
    driver_process.print_tail(out, act.place.log)
    out.print()
    _tell_left(stage.Stage(out, chapters=0), act.name, ending.left)


def _tell_left(out_stage: stage.Stage, interface: str, left: interface_state.Lines) -> None:
    if not left:
        out_stage.say(f"{interface} is restored.")
        return
    out_stage.say(f"The demo's changes of {interface} are removed. These differences come from another program:", style="yellow")
    out_stage.lines(*left)


def _how_it_is(options: eligibility_check.DemoOptions) -> str:
    """Return a sentence for Ctrl-C that reports whether the interface is restored."""
    if options.place.file.exists():
        return f"{options.interface} is not fully restored; run: drakit demo --nic {options.interface} --restore"
    return f"{options.interface} is restored."
