"""``drakit.run``: the command line of somebody's own driver, with drakit's commands on it alone."""

import contextvars
import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from drakit import settings as values
from drakit.cli import composition, ending, local, run, show, slices
from drakit.core import driver as drivers
from drakit.core import errors
from drakit.node import station

Make = Callable[[], drivers.Driver[Any]]
FAMILY = "driver"
_HIDDEN = ("mock", "families")

_HELP = {
    "run": "Serve this node's devices to the kubelet and publish them, until SIGTERM or Ctrl-C.",
    "slices": "Show the ResourceSlices this node would publish, without publishing them.",
    "show": "Show devices and prepared claims. Changes nothing.",
    "prepare": "Prepare the devices of an allocated claim from a file, without Kubernetes.",
    "unprepare": "Give back the devices of claims, also of claims that were never prepared.",
}


def serve(make: Make, arguments: Sequence[str] | None = None) -> None:
    """Be the command line of the driver that ``make`` makes, with these arguments or the process's own; ends the process."""
    driver = make()
    program = pathlib.Path(sys.argv[0]).name
    if program == "__main__.py":
        program = f"python -m {pathlib.Path(sys.argv[0]).parent.name}"
    with _served(driver, make):
        command = functools.partial(_app(driver.name), args=None if arguments is None else list(arguments), prog_name=program)
        ending.guarded(command, program)


def _app(name: str) -> typer.Typer:
    app = typer.Typer(
        help=f"{name}, a Kubernetes DRA driver written on drakit.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in (run.run, slices.slices, show.show, local.prepare, local.unprepare):
        app.command(command.__name__, help=_HELP[command.__name__])(_without(command, _HIDDEN))
    return app


def _without(command: Callable[..., None], hidden: Sequence[str]) -> Callable[..., None]:
    """The command with some of its options left out, at their defaults."""

    @functools.wraps(command)
    def call(**given: object) -> None:
        command(**given)

    signature = inspect.signature(command)
    kept = [one for one in signature.parameters.values() if one.name not in hidden]
    call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined] # what inspect reads first
    return call


@contextmanager
def _served(driver: drivers.Driver[Any], make: Make) -> Iterator[None]:
    """Meanwhile every command is about this driver and no other."""

    def families(settings: values.Settings) -> tuple[composition.Family, ...]:
        if settings.mock.machine is not None:
            raise errors.SettingsError(f"mock machines are for drakit's own drivers, not for {driver.name}", key="mock.machine")
        place = composition.place(settings)
        folders = station.Folders(home=settings.node.plugins_dir / driver.name, cdi=settings.node.cdi_dir)
        post = station.Post(driver_name=driver.name, build=lambda _: make(), place=place)
        return (composition.Family(name=FAMILY, post=post, folders=folders),)

    token: contextvars.Token[Any] = composition.AUTHORED.set(families)
    try:
        yield
    finally:
        composition.AUTHORED.reset(token)
