"""Plots as SVG that follows the page's colours: text and axes use CSS variables, and the line colours suit light, dark and colour blindness.

This is the only module that uses matplotlib. The same input gives the same bytes.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_INK, _RULE = "#101010", "#d0d0d0"
"""Placeholders, which the colours of the page replace."""
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WIDE, _NARROW = 9.0, 4.4
"""Widths in inches."""
_DASHES = ("-", (0, (5, 3)), (0, (1.5, 2)))
"""Dash patterns in turn, so that a line over another one leaves it visible."""
_HOUR, _DAY = 3600.0, 86400.0
_TICKS = (0, 1, 10, 60, 600, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY)
"""The tick marks of waiting times, in seconds."""
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _RULE,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line: a name for the legend, and its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    lines: Sequence[Line]


def over_time(panels: Sequence[Panel], *, label: str, share: bool, wide: bool = True) -> str:
    """Return panels one below the other with a common time axis; x is in seconds. With ``share`` y is from 0 to 1, written in percent.

    A plot that is not ``wide`` is for the screen of a phone.
    """
    last = max((line.x[-1] for panel in panels for line in panel.lines if line.x), default=0.0)
    unit, name = (_DAY, "days") if last > 3 * _DAY else (_HOUR, "hours") if last > 2 * _HOUR else (60.0, "minutes")

    def finish(axes: Any) -> None:
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, last / unit)
        if share:
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")

    scaled = [
        Panel(title=panel.title, lines=[Line(name=line.name, x=[x / unit for x in line.x], y=line.y) for line in panel.lines])
        for panel in panels
    ]
    return _drawn(scaled, xlabel=name, ylabel=label, finish=finish, wide=wide)


def distribution(lines: Sequence[Line], *, wide: bool = True) -> str:
    """Return a plot of the cumulative distribution of waiting times: x in seconds on a logarithmic axis, y from 0 to 1."""

    def finish(axes: Any) -> None:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(0, max((line.x[-1] for line in lines if line.x), default=0.0) + 1)
        axes.set_xticks([tick for tick in (_TICKS if wide else _TICKS[::2]) if tick <= axes.get_xlim()[1]], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.xaxis.set_major_formatter(lambda value, _: _time(value))

    return _drawn([Panel(title="", lines=lines)], xlabel="waited at most", ylabel="tasks", finish=finish, wide=wide)


def _drawn(panels: Sequence[Panel], *, xlabel: str, ylabel: str, finish: Any, wide: bool) -> str:
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"{ylabel} {panels[0].title} {wide}"}):
        figure = Figure(figsize=(_WIDE if wide else _NARROW, 0.9 + 2.1 * len(panels)), layout="constrained")
        figure.patch.set_alpha(0)
        canvas: Any = FigureCanvasSVG(figure)
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
        for axes, panel in zip(grid[:, 0], panels, strict=True):
            axes.patch.set_alpha(0)
            axes.set_title(_plain(panel.title))
            axes.set_ylabel(ylabel)
            for number, line in enumerate(panel.lines):
                style = _DASHES[number % len(_DASHES)]
                axes.plot(line.x, line.y, linestyle=style, color=_LINES[number % len(_LINES)], label=_plain(line.name))
            finish(axes)
        grid[-1, 0].set_xlabel(xlabel)
        if len(panels[0].lines) > 1:
            handles, names = grid[0, 0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside upper left", ncols=min(3 if wide else 1, len(names)))
        stream = io.StringIO()
        canvas.print_svg(stream, metadata={"Date": None, "Creator": None})
    return _themed(stream.getvalue())


def _plain(text: str) -> str:
    """Return a text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")


def _themed(text: str) -> str:
    """Return the SVG element alone, in the page's colours and as wide as the page."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r'<svg [^>]*?height="[^"]*"([^>]*?)width="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # These repeat in every plot of a page, and nothing refers to them.
    return svg.replace(_INK, "var(--ink)").replace(_RULE, "var(--rule)")


def _time(seconds: float) -> str:
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (60.0, "m")):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds:.3g}s"
