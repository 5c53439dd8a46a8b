"""The HTML report: one self-contained file with tables and plots, in light and dark."""

import html as escaping
import re
from collections.abc import Callable, Mapping, Sequence

from drakit_cluster.simulation.fleet.groups import Fleet
from drakit_cluster.simulation.report import plots, results, tables
from drakit_cluster.simulation.report.conclusion import Conclusion
from drakit_cluster.simulation.report.results import Provenance, Result
from drakit_cluster.simulation.workload.tasks import Workload

_POINTS = 400
"""The maximum number of points in a line of waiting times."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --rule: #d5dae0; --soft: #5b6570; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #14181d; --rule: #38414b; --soft: #9aa5b1; } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; } p { margin: .3rem 0; }
.soft { color: var(--soft); } .conclusion { font-size: 1.1rem; margin: 1rem 0 .2rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem .8rem; margin: 1rem 0 0; font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; } .narrow { display: none; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .32rem .8rem .32rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td[data-label=Why] { overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; }
svg { width: 100%; height: auto; display: block; margin: .4rem 0; } svg text { font-family: system-ui, sans-serif !important; }
@media (max-width: 40rem) {
  body { padding: 1.2rem .9rem 3rem; } .broad { display: none; } .narrow { display: block; }
  thead { position: absolute; left: -9999px; } tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--rule); }
  td, td.n { display: flex; justify-content: space-between; gap: 1rem; text-align: left; padding: .1rem 0; border: 0; overflow-wrap: anywhere; }
  td::before { content: attr(data-label); color: var(--soft); flex: none; }
}
"""


def html(fleet: Fleet, workload: Workload, seeds: Sequence[Sequence[Result]], conclusion: Conclusion, provenance: Provenance) -> str:
    """Return the page of the results seed by seed. The conclusion and its table are of all seeds, ``workload`` and the rest of the first."""
    runs = seeds[0]
    last = max((task.arrival for task in workload.tasks), default=0.0)
    groups = ", ".join(f"{len(group.names)} {group.label}" for group in fleet.groups)
    parts = [
        "<h1>Simulation</h1>",
        f'<p class="conclusion">{_text(conclusion.text)}</p><p>{_text(conclusion.doubt)}</p>',
        _facts(
            {
                "Fleet": f"{fleet.size} nodes ({groups})",
                "Tasks": f"{len(workload.tasks)}, the last after {results.duration(last)}: {provenance.tasks}",
                "Seed": _seeds(provenance.seeds),
                "Policies": ", ".join(run.policy.name for run in runs),
                "Versions": provenance.versions,
                "Date": provenance.date,
                "Command": provenance.command,
            }
        ),
        _seeds_table(seeds, provenance.seeds),
        _section(
            "Tasks", "A task waits until all its pods have devices. Waits are those of tasks that started.", _table(tables.tasks(runs))
        ),
        _waiting_times(runs),
        _waiting_pods(runs),
        _section(
            "Use",
            "Shares of all devices of a model. The use of a GPU is the larger of memory and multiprocessors. Means are until the last arrival.",
            _table(tables.models(runs)),
            _plot("Use over time", lambda wide: plots.over_time(_panels(runs, fragmented=False), label="in use", share=True, wide=wide)),
        ),
        _fragmentation(runs),
        _refusals(runs),
    ]
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f"{meta}<title>drakit simulate</title><style>{_STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><main>\n{"".join(parts)}</main></body></html>\n'


def _facts(facts: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{_text(name)}</dt><dd>{_text(value)}</dd>' for name, value in facts.items() if value)}</dl>"


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) < 2:
        return "".join(map(str, seeds))
    return f"{seeds[0]} to {seeds[-1]}; the conclusion is of all, all below the table of seeds is of {seeds[0]}"


def _section(title: str, introduction: str, *content: str) -> str:
    paragraph = f'<p class="soft">{_text(introduction)}</p>' if introduction else ""
    return f"<h2>{_text(title)}</h2>{paragraph}{''.join(content)}\n"


def _seeds_table(seeds: Sequence[Sequence[Result]], numbers: Sequence[int]) -> str:
    if len(seeds) < 2:
        return ""
    return _section(
        "Seeds", "What the conclusion compares: the last rows are the means of all seeds.", _table(tables.seeds(seeds, numbers))
    )


def _waiting_times(runs: Sequence[Result]) -> str:
    title = "Waiting times"
    if not any(run.delayed for run in runs):
        return _section(title, "Every task that started, started at once.")
    return _section(
        title,
        "Tasks that never started are not included.",
        _plot("Distribution of waiting times", lambda wide: plots.distribution([_waits(run) for run in runs], wide=wide)),
    )


def _waiting_pods(runs: Sequence[Result]) -> str:
    title = "Waiting pods"
    if not any(any(run.series.waiting) for run in runs):
        return _section(title, "No pod waited before the last arrival.")
    return _section(
        title, "", _plot("Waiting pods over time", lambda wide: plots.over_time([_waiting(runs)], label="pods", share=False, wide=wide))
    )


def _plot(title: str, draw: Callable[[bool], str]) -> str:
    """Return a plot for broad pages and one for narrow ones, of which the page shows the one whose text is readable."""
    label = f'role="img" aria-label="{_text(title)}"'
    return "".join(f'<div class="{kind}" {label}>{draw(kind == "broad")}</div>' for kind in ("broad", "narrow"))


def _waits(result: Result) -> plots.Line:
    waits = sorted(outcome.started - outcome.task.arrival for outcome in result.outcomes if outcome.started is not None)
    step = max(1, len(waits) // _POINTS)
    points = [(waits[place], (place + 1) / len(waits)) for place in range(0, len(waits), step)]
    if waits:
        points.append((waits[-1], 1.0))
    return plots.Line(name=result.policy.name, x=[x for x, _ in points], y=[y for _, y in points])


def _waiting(runs: Sequence[Result]) -> plots.Panel:
    return plots.Panel(title="", lines=[plots.Line(name=run.policy.name, x=run.series.times, y=run.series.waiting) for run in runs])


def _panels(runs: Sequence[Result], *, fragmented: bool) -> list[plots.Panel]:
    return [
        plots.Panel(
            title=f"{model.model} ({model.count})",
            lines=[
                plots.Line(
                    name=run.policy.name,
                    x=run.series.times,
                    y=run.series.models[number].fragmented if fragmented else run.series.models[number].used,
                )
                for run in runs
            ],
        )
        for number, model in enumerate(runs[0].series.models)
    ]


def _fragmentation(runs: Sequence[Result]) -> str:
    """Return the plots of the models that were fragmented at some time."""
    panels = [panel for panel in _panels(runs, fragmented=True) if any(any(line.y) for line in panel.lines)]
    introduction = "The share of free devices that the next pod cannot use, weighted by how often each kind of pod occurs in the workload."
    if not panels:
        return _section("Fragmentation", f"{introduction} There was none.")
    return _section(
        "Fragmentation",
        introduction,
        _plot("Fragmentation over time", lambda wide: plots.over_time(panels, label="fragmented", share=True, wide=wide)),
    )


def _refusals(runs: Sequence[Result]) -> str:
    rows = [(run.policy.name, refusal.template, refusal.reason, refusal.tasks) for run in runs for refusal in run.refused]
    if not rows:
        return ""
    return _section("Tasks that never started", "", _table(tables.Table(head=("Policy", "Template", "Why", "Tasks"), rows=rows, texts=3)))


def _table(table: tables.Table) -> str:
    kinds = ["" if place < table.texts else ' class="n"' for place in range(len(table.head))]
    top = "".join(f"<th{kind}>{_text(name)}</th>" for kind, name in zip(kinds, table.head, strict=True))
    labels = [f'{kind} data-label="{_text(name)}"' for kind, name in zip(kinds, table.head, strict=True)]
    lines = ("".join(f"<td{label}>{_cell(cell)}</td>" for label, cell in zip(labels, row, strict=True)) for row in table.rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    """Return a cell's text, in which the name of a policy may break after each of its parts."""
    return re.sub("([,+])", r"\1<wbr>", _text(str(value)))


def _text(text: str) -> str:
    return escaping.escape(text)
