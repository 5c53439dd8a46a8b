"""The command: runs all checks, prints the findings, and reports by the exit status whether the driver would work."""

import contextlib
import dataclasses
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import typer

from drakit import exits
from drakit import settings as values
from drakit.cli import composition, options, output
from drakit.cli.doctor import api, fleet, folders, hardware, pages
from drakit.core import errors
from drakit.core.advanced import Finding, Verdict
from drakit.kube import client
from drakit.telemetry import plurals

_INDENT = 9
_REPORT = "report this as a bug in drakit"


def families_on_node(settings: values.Settings) -> Iterator[Finding]:
    """Run the families' own checks of a node with real hardware."""
    if settings.mock.machine is not None:
        return
    try:
        served = composition.families(settings)
    except errors.SettingsError:
        return  # The check of devices reports it.
    for family in served:
        try:
            yield from family.kind.check_node(family.options, composition.site(settings, family.spec.driver_name))
        except Exception as error:  # noqa: BLE001 - the other families' checks must still run
            yield Finding.unknown(family.name, "doctor", _broken(error), _REPORT)


EXAMINATIONS: Mapping[str, Callable[[values.Settings], Iterable[Finding]]] = {
    "folders": folders.examine,
    "pages": pages.examine,
    "families": families_on_node,
    "devices": hardware.examine,
    "api": api.examine,
}
OF_CLUSTER: Mapping[str, Callable[[values.Settings], Iterable[Finding]]] = {"cluster": fleet.examine}


@options.quietly
def doctor(
    mock: options.Mock = None,
    folder: options.Folder = None,
    node_name: options.Node = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
    without_api: options.WithoutApi = False,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Check the slices and claims of all nodes instead of this node, with a kubeconfig that may list them."
        ),
    ] = False,
    style: options.Output = options.Format.TABLE,
) -> None:
    """Check everything that the driver needs on this node and in this cluster, and print a fix for each problem.

    Changes nothing. The exit status is 1 if a check failed, else 0, also with warnings. It is 2 for an unknown machine, and with --cluster for a
    kubeconfig that cannot be used.

    [bold]Examples[/bold]

      drakit doctor --node $(hostname)

      kubectl -n drakit-system exec ds/drakit-gpu -- drakit doctor

      drakit doctor --family nic --node $(hostname)

      drakit doctor --mock dgx-a100-40gb-2gpu --no-api

      drakit doctor --cluster --kubeconfig admin.conf
    """
    if cluster and mock is not None:
        raise errors.SettingsError("--cluster checks all nodes of a cluster; leave out --mock", key="--mock")
    settings = options.read(
        config=config, assignments=assignments, mock=mock, folder=folder, node=node_name, local=True, flags={"api.kubeconfig": kubeconfig}
    )
    settings = composition.narrowed(settings, families or ())
    composition.machine(settings)  # An unknown machine is no finding: no check could use it.
    left_out = {"api"} if without_api else set[str]()
    findings = tuple(examine(settings, tuple(OF_CLUSTER if cluster else (name for name in EXAMINATIONS if name not in left_out))))
    if style is options.Format.TABLE:
        _print(findings, "all nodes" if cluster else _place(settings), "not asked" if without_api and not cluster else _server(settings))
    else:
        output.document([{**dataclasses.asdict(entry), "verdict": entry.verdict.value} for entry in findings], style)
    if any(entry.verdict is Verdict.FAILED for entry in findings):
        raise typer.Exit(exits.Exit.NEGATIVE)


def examine(settings: values.Settings, names: Sequence[str]) -> Iterator[Finding]:
    """Run the named checks and yield their findings; an exception in one check is a finding, and the others still run.

    Raises SettingsError if there is no cluster to check.
    """
    for name in names:
        try:
            yield from {**EXAMINATIONS, **OF_CLUSTER}[name](settings)
        except Exception as error:
            if name in OF_CLUSTER and isinstance(error, errors.SettingsError):
                raise
            yield Finding.unknown(name, "doctor", _broken(error), _REPORT)


def _broken(error: Exception) -> str:
    return f"this check failed: {type(error).__name__}: {error}"


def _place(settings: values.Settings) -> str:
    """Return which machine the checks look at."""
    return f"mock machine {settings.mock.machine}" if settings.mock.machine else f"this machine, {platform.node()}"


def _server(settings: values.Settings) -> str:
    """Return which API server the checks look at."""
    try:
        with contextlib.closing(client.connect(settings.api.kubeconfig)) as api:
            return api.server
    except errors.SettingsError:
        return "none"


def _print(findings: Sequence[Finding], place: str, server: str) -> None:
    out, prose = output.console(), output.prose()
    output.say(prose, f"checked: {place}; API server: {server}")
    for topic in dict.fromkeys(result.topic for result in findings):
        output.heading(prose, topic)
        for result in findings:
            if result.topic == topic and (result.verdict is not Verdict.OK or not prose.quiet):
                output.say(out, f"{result.verdict.value:8} {result.subject}: {result.message}", hang=_INDENT)
                if result.fix and result.verdict is not Verdict.OK:
                    output.say(out, f"fix: {result.fix}", indent=_INDENT, hang=len("fix: "))
    count = Counter(result.verdict for result in findings)
    prose.print()
    output.say(prose, ", ".join(_counted(count[verdict], verdict) for verdict in Verdict if count[verdict]))


def _counted(count: int, verdict: Verdict) -> str:
    return plurals.counted(count, verdict.value) if verdict is Verdict.WARNING else f"{count} {verdict.value}"
