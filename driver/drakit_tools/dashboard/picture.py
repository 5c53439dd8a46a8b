"""The dashboard's state as one SVG picture: GPUs as maps of memory slices, NICs as bars of bandwidth. Pure.

The colours are those of the page, light or dark as the viewer prefers. The picture loads nothing and has no script; names are text, never markup.
"""

import importlib.resources
import itertools
from xml.etree import ElementTree

from drakit.cli import terminal
from drakit.core import quantity
from drakit.telemetry import plurals
from drakit_tools.dashboard import model

_WIDTH, _MARGIN, _LINE = 860, 24, 22
_MAP_HEIGHT, _BAR_HEIGHT, _GAP = 34, 20, 2
_LETTER = 9
"""The assumed width of a letter in pixels. It is larger than in common fonts, so that a text that fits by this width fits."""
_GOLDEN_ANGLE, _FIRST_HUE = 137.508, 215
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: var(--text); }
.head { font-size: 16px; font-weight: 600; } .name { font-weight: 600; } .soft { fill: var(--soft); } .bad { fill: var(--bad); }
.back { fill: var(--card); } .free { fill: var(--free); } .used { fill: hsl(var(--hue) 62% 26%); } .in { fill: var(--on-claim); font-weight: 600; }
@media (prefers-color-scheme: dark) { .used { fill: hsl(var(--hue) 60% 68%); } }
"""


def svg(state: model.State) -> str:
    """Return the picture as an SVG document."""
    drawn = _Drawing()
    drawn.text(f"drakit: {state.title}", "head")
    for node in state.nodes:
        for pool in node.pools:
            _draw_pool(drawn, pool)
    if state.problem:
        drawn.text(state.problem, "bad")
    return drawn.document(state.title)


class _Drawing:
    """Shapes from top to bottom; the next shape begins at ``y``."""

    def __init__(self) -> None:
        self.y = float(_MARGIN)
        self._root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        self._hues: dict[str, int] = {}

    def document(self, title: str) -> str:
        """Return the SVG document as text."""
        height = f"{self.y + _MARGIN:g}"
        self._root.attrib |= {"viewBox": f"0 0 {_WIDTH} {height}", "width": str(_WIDTH), "height": height}
        ElementTree.SubElement(self._root, "title").text = _clean(title)
        ElementTree.SubElement(self._root, "style").text = _page_colours() + _STYLE
        back = ElementTree.Element("rect", {"class": "back", "width": "100%", "height": "100%"})
        first = [child for child in self._root if child.tag in {"title", "style"}]
        shapes = [child for child in self._root if child not in first]
        self._root[:] = [*first, back, *shapes]
        return ElementTree.tostring(self._root, encoding="unicode", xml_declaration=False) + "\n"

    def text(self, text: str, kind: str = "") -> None:
        """Write text on separate lines, broken between words."""
        for line in terminal.wrapped(_clean(text), int((_WIDTH - 2 * _MARGIN) / _LETTER)):
            self.y += _LINE
            self._put("text", line, kind, x=_MARGIN, y=self.y - 6)

    def row(self, height: float) -> None:
        """End a row of rectangles."""
        self.y += height + _GAP

    def box(self, x: float, width: float, height: float, label: str, claim: str) -> None:
        """Draw a rectangle in the current row, in the colour of its claim, if it has one."""
        hue = {"style": f"--hue:{self._hue(claim)}"} if claim else {}
        made = self._put("rect", "", "used" if claim else "free", x=_MARGIN + x, y=self.y, width=max(width - _GAP, 1), height=height, rx=4)
        made.attrib |= hue
        if claim:
            ElementTree.SubElement(made, "title").text = _clean(claim)
        if shown := _fitted(label, width):
            middle = {"x": _MARGIN + x + (width - _GAP) / 2, "y": self.y + height / 2 + 4.5}
            self._put("text", shown, "in" if claim else "soft", **middle).set("text-anchor", "middle")

    def share(self, text: str, claim: str) -> None:
        """Write a line about a share, after a patch in its claim's colour."""
        self.y += _LINE
        self._put("rect", "", "used", x=_MARGIN, y=self.y - 16, width=10, height=10, rx=3).set("style", f"--hue:{self._hue(claim)}")
        self._put("text", text, "", x=_MARGIN + 18, y=self.y - 6)

    def _hue(self, claim: str) -> int:
        place = self._hues.setdefault(claim, len(self._hues))
        return round(place * _GOLDEN_ANGLE + _FIRST_HUE) % 360

    def _put(self, tag: str, text: str, kind: str, **numbers: float) -> ElementTree.Element:
        made = ElementTree.SubElement(self._root, tag, {name: f"{value:g}" for name, value in numbers.items()})
        if kind:
            made.set("class", kind)
        made.text = _clean(text) or None
        return made


def _draw_pool(drawn: _Drawing, pool: model.Pool) -> None:
    drawn.y += _LINE / 2
    drawn.text(f"{pool.driver} on {pool.name}", "soft")
    if pool.note:
        drawn.text(pool.note, "bad")
    for gpu in pool.gpus:
        _draw_gpu(drawn, gpu)
    for nic in pool.nics:
        _draw_nic(drawn, nic)
    for device in pool.others:
        use = f"in use by {', '.join(device.claims)}" if device.claims else "free"
        drawn.text(f"{device.name} ({device.kind}): {use}", "name")
        _draw_health(drawn, device.health)


def _draw_gpu(drawn: _Drawing, gpu: model.Gpu) -> None:
    drawn.text(gpu.name, "name")
    _draw_health(drawn, gpu.health)
    slot = (_WIDTH - 2 * _MARGIN) / gpu.width
    spans = {span.start: span for span in gpu.spans}
    place = 0
    while place < gpu.width:
        span = spans.get(place)
        size = span.size if span else 1
        drawn.box(place * slot, size * slot, _MAP_HEIGHT, span.label if span else str(place), span.label if span else "")
        place += size
    drawn.row(_MAP_HEIGHT)
    fits = ", ".join(f"{number} x {kind}" for kind, number in gpu.fits.items() if number)
    drawn.text(f"still fits: {fits}" if fits else "nothing more fits", "soft")


def _draw_nic(drawn: _Drawing, nic: model.Nic) -> None:
    used = sum(share.amount for share in nic.shares)
    drawn.text(f"{nic.name}: {_rate(max(nic.capacity - used, 0))} of {_rate(nic.capacity)} free", "name")
    _draw_health(drawn, nic.health)
    whole = _WIDTH - 2 * _MARGIN
    widths = [whole * min(share.amount / (nic.capacity or 1), 1) for share in nic.shares]
    starts = [0.0, *itertools.accumulate(widths)]
    for share, start, width in zip(nic.shares, starts, widths, strict=False):
        drawn.box(start, width, _BAR_HEIGHT, "", share.claim)
    if starts[-1] < whole:
        drawn.box(starts[-1], whole - starts[-1], _BAR_HEIGHT, "", "")
    drawn.row(_BAR_HEIGHT)
    for share in nic.shares:
        drawn.share(f"{_rate(share.amount)}  {share.claim}", share.claim)


def _draw_health(drawn: _Drawing, health: model.Health) -> None:
    if health.state not in {"", "Healthy"}:
        drawn.text(f"{health.state}: {health.message}" if health.message else health.state, "bad")
    if health.taints:
        drawn.text(f"{plurals.counted(len(health.taints), 'taint')}: {', '.join(health.taints)}", "bad")


def _rate(bits: int) -> str:
    return f"{quantity.Quantity.of(bits)}bit/s"


def _fitted(label: str, width: float) -> str:
    """Return the label without namespaces if it fits, else its beginning; the rectangle's title has the whole label."""
    short = ", ".join(claim.rpartition("/")[2] for claim in label.split(", "))
    room = int((width - 2 * _GAP) / _LETTER)
    return short if len(short) <= room else f"{short[: room - 1]}…" if room > 1 else ""


def _clean(text: str) -> str:
    """Return the text without characters that XML forbids."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _page_colours() -> str:
    """Return the style rules that define the page's colours."""
    rules, _, _ = importlib.resources.files(__package__).joinpath("page.css").read_text("utf-8").partition("\n* {")
    return rules
