"""``drakit.run``: the command line of an author's driver, with drakit's commands for this driver."""

import dataclasses
import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from drakit import families
from drakit import settings as values
from drakit.cli import options, process, terminal, tools
from drakit.cli.commands import journal, prepare, publish, run, show, slices, uninstall, webhook
from drakit.cli.doctor import command as doctor
from drakit.core import advanced
from drakit.core import driver as drivers
from drakit.settings import schema
from drakit.telemetry import logs

Make = Callable[..., drivers.Driver[Any]]
Command = Callable[..., None]

_HIDDEN = ("mock", "families", "family", "every")
# The help of these options elsewhere is about a program that serves several families.
_RETOLD: Mapping[str, object] = {
    "folder": Annotated[
        pathlib.Path | None,
        typer.Option("--folder", metavar="DIR", help="Keep all files (journal, CDI files) below DIR instead of the system folders."),
    ],
    "assignments": Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one setting to a YAML value: --set publish.rescan=30. May be repeated."),
    ],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Offered:
    """A command of an author's program, with a help text that fits any driver, and an example."""

    command: Command
    meaning: str
    example: str


_UID = "4cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
_COMMANDS: Mapping[str, _Offered] = {
    "run": _Offered(
        command=run.run,
        meaning="""Serve this node's devices to the kubelet and publish them, until SIGTERM or Ctrl-C.

        Flags override DRAKIT_ variables, which override the file of --config, which overrides the defaults. Slices stay published when the driver
        stops, so a restart does not take devices from pods.

        The driver runs as root and uses the kubelet's folders below /var/lib/kubelet, which must exist, and /var/run/cdi.""",
        example="run --node $(hostname)",
    ),
    "slices": _Offered(
        command=slices.slices,
        meaning="""Show the ResourceSlices that this node would publish, without publishing them.

        The table compares the two forms. With -o yaml or json the command prints the objects, in the form flat unless --form is given.""",
        example="slices -o yaml",
    ),
    "show": _Offered(
        command=show.show,
        meaning="""Show devices and prepared claims.

        Reads the hardware and the driver's journal, changes nothing, and needs no API server. If the driver is running, it also shows device
        health.""",
        example="show -o json",
    ),
    "prepare": _Offered(
        command=prepare.prepare,
        meaning="""Prepare the devices of an allocated claim, without Kubernetes.

        A file has one or more ResourceClaims as the API server returns them, with status.allocation. The CDI files of the devices are written to
        the CDI directory, and the CDI device names are printed.""",
        example="prepare claim.yaml --node $(hostname)",
    ),
    "unprepare": _Offered(
        command=prepare.unprepare,
        meaning="Release the devices of claims. A claim that is not prepared is not an error.",
        example=f"unprepare {_UID} --node $(hostname)",
    ),
    "doctor": _Offered(
        command=doctor.doctor,
        meaning="""Check everything that the driver needs on this node and in this cluster, and print a fix for each problem.

        Changes nothing. The exit status is 1 if a check failed, else 0, also with warnings.""",
        example="doctor --node $(hostname)",
    ),
    "uninstall-node": _Offered(
        command=uninstall.uninstall_node,
        meaning="""List what the driver left on this node, and with --yes remove it.

        Stop the driver first. The command removes devices that were made for claims, CDI files, sockets, the journal, and this node's ResourceSlices.
        If a claim is prepared and still allocated, its pods may be running: nothing is removed without --force.""",
        example="uninstall-node --node $(hostname) --yes",
    ),
    "webhook": _Offered(
        command=webhook.webhook,
        meaning="""Serve the admission webhook for the driver's opaque parameters, until SIGTERM or Ctrl-C.

        The API server calls it when a ResourceClaim, ResourceClaimTemplate or DeviceClass is created or its spec is changed. The webhook rejects
        parameters that prepare would reject, and names the field. It serves POST /validate and needs no rights in the cluster. It loads a new
        certificate when the files change.""",
        example="webhook --address 127.0.0.1:8443 --certificate tls.crt --key tls.key",
    ),
}
_LINT_MEANING = """Check slices, classes, claims, templates, taint rules and pods with the rules of the API server, and against each other.

The checks between objects find, for example, selectors that match no device, claims that fit on no node, and pods whose claims are missing.
Parameters for this driver are checked as at prepare. The exit status is 0 without errors, 1 with an error, and 2 if a file cannot be read."""
_PUBLISH = _Offered(
    command=functools.partial(publish.publish, family=""),
    meaning="""Publish the driver's pools that belong to no node, for the whole cluster, until SIGTERM or Ctrl-C.

    If a driver has several publishers, only the holder of a Lease writes (settings election.*). It releases the Lease when it stops; if it is
    killed, another publisher takes over after election.duration. Slices stay published when the publisher stops. The publisher owns all slices of
    the driver that belong to no node, and deletes unknown pools.""",
    example="publish --set election.namespace=default",
)
_JOURNAL_MEANING = """Inspect the journal, in which this driver records its prepared claims.

Every command reads a copy. The journal itself is not locked, migrated or changed, and the driver may be running."""
_JOURNAL: Mapping[str, _Offered] = {
    "show": _Offered(
        command=journal.show,
        meaning="""List the claims in the journal, or show one claim in full.

        The list has each claim's state, its devices, and whether it was prepared since the last boot. The states are preparing, prepared and
        unpreparing. The kubelet's next call, or the next start of the driver, completes a claim that is preparing or unpreparing.

        With a UID, or with -o yaml or json, it prints everything that the journal has of a claim: intents, records, CDI edits, state, parameters,
        and the devices as they were allocated. Check the parameters before you share them in a bug report.""",
        example=f"journal show {_UID}",
    ),
    "verify": _Offered(
        command=journal.verify,
        meaning="""Check that the journal is intact, that every row can be read, and that the CDI files match the journal.

        Exits with status 1 if there is a problem, and prints the fix. While the driver runs, the CDI files of claims in
        progress may be reported too; in this case, run it again.""",
        example="journal verify",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """The author's additions to the program: a class of settings, its group, and commands by name."""

    settings: type | None = None
    group: str = ""
    commands: Mapping[str, Command] = dataclasses.field(default_factory=dict)


def serve(make: Make, arguments: Sequence[str] | None = None, extras: Extras | None = None) -> None:
    """Run the command line of the driver that ``make`` makes, with these arguments or the process's own, and exit the process.

    ``make`` receives the settings if ``extras`` has a class for them.
    """
    program = pathlib.Path(sys.argv[0]).name
    if program == "__main__.py":
        program = f"python -m {pathlib.Path(sys.argv[0]).parent.name}"
    process.guarded(lambda: _serve(make, program, arguments, extras or Extras()), program)


def _serve(make: Make, program: str, arguments: Sequence[str] | None, extras: Extras) -> None:
    _follow_loggers(make)
    family = families.DriverFamily(make, options=extras.settings, name=extras.group)
    kind, name = family.kind_and_name
    _follow_loggers(kind)
    token = schema.CURRENT.set(schema.of_driver(family, publishes=issubclass(kind, advanced.ClusterPools)))
    try:
        _app(kind, name, program, extras, family)(args=None if arguments is None else list(arguments), prog_name=program)
    finally:
        schema.CURRENT.reset(token)


def _follow_loggers(author: object) -> None:
    """Apply ``--log-level`` to the loggers of the author's package and program."""
    modules = (str(getattr(author, "__module__", "")), "__main__", str(getattr(sys.modules["__main__"], "__package__", None) or ""))
    logs.follow(*(package for module in modules if (package := module.partition(".")[0])))


def _app(kind: type[drivers.Driver[Any]], name: str, program: str, extras: Extras, family: families.DriverFamily) -> typer.Typer:
    commands = {**_COMMANDS, "publish": _PUBLISH} if issubclass(kind, advanced.ClusterPools) else dict(_COMMANDS)
    if lint := tools.find("lint"):
        commands["lint"] = _Offered(command=lint, meaning=_LINT_MEANING, example="lint deploy/ claims.yaml")
    app = _group(f"{name}, a Kubernetes DRA driver written on drakit.", commands, program)
    app.add_typer(_group(_JOURNAL_MEANING, _JOURNAL, program), name="journal")
    for word, command in extras.commands.items():
        if word in commands or word == "journal":
            raise TypeError(f"commands has {word!r}, which every driver's program has; choose another name")
        app.command(word)(command if extras.settings is None else _for_any_driver(_with_settings(command, family)))
    return app


def _with_settings(command: Command, family: families.DriverFamily) -> Command:
    """Return an author's command with the options for settings; its first parameter is the author's settings."""

    def call(settings: values.Settings, /, **given: object) -> None:
        command(schema.options_of(settings, family), **given)

    functools.update_wrapper(call, command)
    return options.on_a_node(call)


def _group(meaning: str, commands: Mapping[str, _Offered], program: str) -> typer.Typer:
    app = typer.Typer(
        help=terminal.flowed(meaning),
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, command in commands.items():
        help_text = f"{terminal.flowed(inspect.cleandoc(command.meaning))}\n\n[bold]Example[/bold]\n\n  {program} {command.example}"
        app.command(name, help=help_text)(_for_any_driver(command.command))
    return app


def _for_any_driver(command: Command) -> Command:
    """Return the command without the options for drakit's own drivers, and with help for the others that fits any driver."""

    @functools.wraps(command)
    def call(**given: object) -> None:
        command(**given)

    signature = inspect.signature(command, eval_str=True)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name not in _HIDDEN]
    parameters = [parameter.replace(annotation=_RETOLD.get(parameter.name, parameter.annotation)) for parameter in kept]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # what inspect reads first
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
