"""The command itself: run every examination, show what was found, and say by the exit status whether the driver would work."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import typer

from drakit import settings as values
from drakit.cli import composition, options, output
from drakit.cli.doctor import api, finding, folders, gpus, hardware, nics, pages
from drakit.cli.doctor.finding import Examination, Finding, Verdict

_INDENT = 9
EXAMINATIONS: Mapping[str, Examination] = {
    "folders": folders.examine,
    "pages": pages.examine,
    "nvml": gpus.examine,
    "nics": nics.examine,
    "devices": hardware.examine,
    "api": api.examine,
}


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
    style: options.Output = options.Format.TABLE,
) -> None:
    """Look at everything the driver needs on this node and in this cluster, and say how to fix what is missing.

    Changes nothing. The status is 0 when the driver would work (warnings or not), 1 when it would not.

    [bold]Examples[/bold]

      drakit doctor --node $(hostname)

      kubectl -n drakit-system exec ds/drakit-gpu -- drakit doctor

      drakit doctor --family nic --node $(hostname)

      drakit doctor --mock dgx-a100-40gb-2gpu --no-api
    """
    settings = options.read(
        config=config, assignments=assignments, mock=mock, folder=folder, node=node_name, local=True, flags={"api.kubeconfig": kubeconfig}
    )
    settings = composition.narrowed(settings, families or ())
    left_out = {"api"} if without_api else set[str]()
    if composition.AUTHORED.get() is not None:
        left_out |= {"nvml", "nics"}
    findings = tuple(examine(settings, tuple(name for name in EXAMINATIONS if name not in left_out)))
    if style is options.Format.TABLE:
        _print(findings)
    else:
        output.document([{**dataclasses.asdict(entry), "verdict": entry.verdict.value} for entry in findings], style)
    if any(entry.verdict is Verdict.FAILED for entry in findings):
        raise typer.Exit(1)


def examine(settings: values.Settings, names: Sequence[str]) -> Iterator[Finding]:
    """Everything that is found; an examination that itself breaks is a finding, not the end."""
    for name in names:
        try:
            yield from EXAMINATIONS[name](settings)
        except Exception as error:  # noqa: BLE001 - the other examinations must still be made
            yield finding.unknown(
                name, "doctor", f"this examination broke: {type(error).__name__}: {error}", "report it as a bug of drakit"
            )


def _print(findings: Sequence[Finding]) -> None:
    out, prose = output.console(), output.prose()
    for topic in dict.fromkeys(result.topic for result in findings):
        output.heading(prose, topic)
        for result in findings:
            if result.topic == topic and (result.verdict is not Verdict.OK or not prose.quiet):
                output.say(out, f"{result.verdict.value:8} {result.subject}: {result.message}", hang=_INDENT)
                if result.fix:
                    output.say(out, f"fix: {result.fix}", indent=_INDENT, hang=len("fix: "))
    count = Counter(result.verdict for result in findings)
    prose.print()
    output.say(prose, ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict if count[verdict]))
