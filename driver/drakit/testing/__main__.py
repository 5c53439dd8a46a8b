"""``python -m drakit.testing``: check a driver from a shell or in CI. ``check`` needs a driver written with drakit, ``conformance`` any."""

import contextlib
import dataclasses
import importlib
import inspect
import json
import os
import pathlib
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from drakit import exits, extras
from drakit.core import advanced, errors
from drakit.testing import checking, crashing
from drakit.testing import report as reports

if TYPE_CHECKING:
    from drakit_tools.conformance import suite

Format = Literal["table", "json"]
Output = Annotated[Format, typer.Option("--output", "-o", help="table for people, json for machines.")]
Exclusive = Annotated[
    list[str] | None,
    typer.Option(
        "--exclusive",
        metavar="NAME",
        help="A variable or device node, with *, that names a part which only one claim may have at a time. May be repeated.",
    ),
]
Junit = Annotated[pathlib.Path | None, typer.Option("--junit", metavar="FILE", help="Also write the report as JUnit XML.")]

app = typer.Typer(
    name="python -m drakit.testing",
    help="Check a driver against drakit's contract or the kubelet's.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def check(
    target: Annotated[str, typer.Argument(metavar="MODULE:DRIVER", help="The driver's class, or a function that returns a driver.")],
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware", metavar="MODULE:FUNCTION", help="A function that returns the state of the hardware. Every check must restore it."
        ),
    ] = None,
    devices: Annotated[list[str] | None, typer.Option("--device", metavar="NAME", help="A device to try. May be repeated.")] = None,
    parameters: Annotated[
        list[str] | None, typer.Option("--parameters", metavar="JSON", help="Opaque parameters to accept. May be repeated.")
    ] = None,
    refused: Annotated[
        list[str] | None, typer.Option("--refused", metavar="JSON", help="Opaque parameters to refuse. May be repeated.")
    ] = None,
    consumed: Annotated[
        list[str] | None,
        typer.Option("--consumed", metavar="NAME=AMOUNT", help="Capacity that claims of shared devices take. May be repeated."),
    ] = None,
    exclusive: Exclusive = None,
    earlier: Annotated[
        list[pathlib.Path] | None,
        typer.Option(
            "--earlier", metavar="FILE", help="A claim of an earlier release, as its journal show UID -o json printed it. May be repeated."
        ),
    ] = None,
    kill: Annotated[bool, typer.Option("--kill", help="Crash with SIGKILL, for hardware that survives the process.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, metavar="N", help="Crash at every Nth line.")] = 1,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="The time in which each call of the driver must return; 0: no limit."),
    ] = 60.0,
    form: Output = "table",
    junit: Junit = None,
) -> None:
    """Check a driver written with drakit: every obligation, and a crash at every line.

    Exit status is 0 if no obligation is broken, 1 if one is, and 2 for an invalid target.

    [bold]Examples[/bold]

      python -m drakit.testing check hello_driver.__main__:make

      python -m drakit.testing check my_driver:MyDriver --every 5 --junit report.xml
    """
    with _bad_input(Exception):
        make, state = _named(target), _named(hardware) if hardware else None
        wanted = [[_parameters(text) for text in given or ()] for given in (parameters, refused)]
        amounts = dict(_pair(text) for text in consumed or ())
    with _bad_input(Exception):
        try:
            report = checking.check_driver(
                make,
                hardware=state,
                device_names=devices or (),
                parameters=wanted[0],
                refused_parameters=wanted[1],
                consumed=amounts,
                exclusive=exclusive or (),
                earlier=earlier or (),
                death=crashing.Death.KILL if kill else crashing.Death.RAISE,
                every=every,
                timeout=timeout,
                junit=junit,
                progress=_progress(form),
            )
        except checking.CheckError as error:
            report = error.report
    _finish(report, form)


@app.command()
def conformance(
    socket: Annotated[
        pathlib.Path,
        typer.Option("--socket", metavar="PATH", help="The driver's registration socket, or the folder plugins_registry that has it."),
    ],
    driver: Annotated[str, typer.Option("--driver", metavar="NAME", help="The driver, if the folder has several.")] = "",
    kubeconfig: Annotated[
        pathlib.Path | None, typer.Option("--kubeconfig", metavar="FILE", help="The cluster that has the claims and the driver's slices.")
    ] = None,
    claims: Annotated[
        list[str] | None,
        typer.Option(
            "--claim",
            metavar="NAMESPACE/NAME",
            help="An allocated claim of this driver and node that no pod uses. May be repeated.",
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="NAME", help="Create claims of this DeviceClass, and delete them afterwards. May be repeated."),
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", metavar="NAME", help="The namespace of the created claims.")] = "default",
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="The socket's node, if the driver serves several.")] = "",
    cdi: Annotated[
        pathlib.Path | None, typer.Option("--cdi-dir", metavar="DIR", help="Also check the CDI files in this folder, often /var/run/cdi.")
    ] = None,
    exclusive: Exclusive = None,
    start: Annotated[
        str,
        typer.Option(
            "--start", metavar="COMMAND", help="Start the driver with this command, kill it to check restarts, and stop it at the end."
        ),
    ] = "",
    restart: Annotated[
        str,
        typer.Option("--restart", metavar="COMMAND", help="A command that kills and restarts the driver, for the restart checks."),
    ] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Also fail on warnings.")] = False,
    form: Output = "table",
    junit: Junit = None,
) -> None:
    r"""Check any DRA driver, in any language, over its sockets, as the kubelet, the container runtime and the scheduler see it.

    It prepares and unprepares the given or created claims several times. Run it on a test node, as a user who may open the sockets. Without claims it
    checks registration and unknown claims only. It needs the extra drakit\[tools].

    FAIL: the kubelet or a container relies on this. warn: the kubelet accepts it, but pods lose a retry or a device. n/a: the check did not run; the
    message says which option it needs.

    Exit status is 0 if nothing fails, 1 if a check fails (or warns, with --strict), and 2 without a driver or a claim to check.

    [bold]Examples[/bold]

      python -m drakit.testing conformance --socket /var/lib/kubelet/plugins_registry --driver gpu.example.com

      python -m drakit.testing conformance --socket ~/dra/node-1/plugins_registry --kubeconfig ~/dra/kubeconfig --class gpu
      --cdi-dir ~/dra/node-1/cdi --start "drakit run --folder ..." --junit report.xml
    """
    with _bad_input():
        extras.require_tools()
        if start and restart:
            raise errors.ConfigError("--start and --restart exclude each other: a driver that --start runs is killed and started by it")
        if not kubeconfig and (claims or classes):
            raise errors.ConfigError("--claim and --class need --kubeconfig, the cluster that has them")
    from drakit_tools.conformance import api_objects, restarts, sockets, suite

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Stop the driver and delete claims on SIGTERM too.
    subject = suite.Subject(
        path=socket.expanduser(),
        driver=driver,
        cdi=cdi,
        exclusive=tuple(exclusive or ()),
        restarter=restarts.Restarter(start=start, restart=restart),
    )
    with (
        _bad_input(api_objects.ClaimError, restarts.RestartError, sockets.UnreachableError),
        _on_cluster(subject, kubeconfig, node, claims or (), classes or (), namespace) as complete,
    ):
        report = suite.check_plugin(complete, junit=junit, progress=_progress(form))
    _finish(report, form, strict=strict)


@contextlib.contextmanager
def _on_cluster(
    subject: "suite.Subject", kubeconfig: pathlib.Path | None, node: str, named: Sequence[str], classes: Sequence[str], namespace: str
) -> Iterator["suite.Subject"]:
    """Yield a subject with the claims and slices of a cluster, if there is one, and delete created objects afterwards."""
    if kubeconfig is None:
        yield subject
        return
    from drakit.kube import client
    from drakit_tools.conformance import api_objects

    api = client.connect(kubeconfig.expanduser())
    found = api_objects.Objects(api, node=node)
    try:
        with found.made(classes, namespace) as make:
            yield dataclasses.replace(
                subject,
                claims=lambda driver: [*map(found.get, named), *make(driver)],
                published=found.slices,
                server=lambda: found.server,
            )
    finally:
        api.close()


@contextlib.contextmanager
def _bad_input(*kinds: type[Exception]) -> Iterator[None]:
    """Print a user's error as one line, with its place in the user's code, and exit with status 2."""
    known: tuple[type[Exception], ...] = (errors.DrakitError, ValueError, *kinds)
    try:
        yield
    except known as error:
        place = _place(error)
        kind = f"{type(error).__name__}: " if place and not isinstance(error, errors.DrakitError) else ""
        typer.echo(f"error: {kind}{error}{place}", err=True)
        raise typer.Exit(exits.Exit.BAD_INPUT) from error


def _place(error: Exception) -> str:
    """Return the innermost line of an error that is of the user's program, not of drakit or Python."""
    ours = (str(pathlib.Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    return f" (at {pathlib.Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""


def _named(target: str) -> Callable[[], Any]:
    """Return the callable ``MODULE:NAME``. Modules of the present folder are found too."""
    module, colon, name = target.partition(":")
    if not colon:
        raise ValueError(f"{target}: give MODULE:NAME, for example my_driver:MyDriver")
    sys.path.insert(0, str(pathlib.Path.cwd()))
    found = getattr(importlib.import_module(module), name)
    if not callable(found):
        raise TypeError(f"{target}: is {type(found).__name__}, and must be a class or a function")
    return found  # type: ignore[no-any-return] # whatever a user named


def _parameters(text: str) -> Mapping[str, object]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"{text}: is no JSON object")
    return value


def _pair(text: str) -> tuple[str, str]:
    name, sign, amount = text.partition("=")
    if not sign:
        raise ValueError(f"--consumed {text}: give NAME=AMOUNT")
    return name, amount


def _progress(form: Format) -> Callable[[reports.Check], object]:
    def shown(check: reports.Check) -> None:
        print(
            f"{reports.WORDS[check.verdict]:4}  {check.seconds:6.2f} s  {check.name}{f': {check.message}' if check.message else ''}",
            flush=True,
        )

    return shown if form == "table" else bool


def _finish(report: reports.Report, form: Format, *, strict: bool = False) -> None:
    """Print the end of a report, and end the process without waiting for threads of the driver."""
    if form == "json":
        print(json.dumps(report.document(), indent=2))
    else:
        counted = ", ".join(f"{report.count(verdict)} {word}" for verdict, word in reports.WORDS.items())
        print(f"{report.driver}: {counted}")
    sys.stdout.flush()
    sys.stderr.flush()
    is_bad = report.count(advanced.Verdict.FAILED) or (strict and report.count(advanced.Verdict.WARNING))
    os._exit(exits.Exit.NEGATIVE if is_bad else exits.Exit.OK)


for _command in app.registered_commands:
    _command.help = inspect.getdoc(_command.callback)

if __name__ == "__main__":
    app()
