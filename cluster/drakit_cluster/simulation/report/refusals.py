"""Reasons why tasks never started: an obstacle even on an empty node, or only a lack of free devices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.explain import obstacles
from drakit_cluster.scheduling.explain.obstacles import Obstacle
from drakit_cluster.simulation.engine.nodes import Nodes, PlacedType
from drakit_cluster.simulation.engine.simulator import Outcome
from drakit_cluster.simulation.workload.templates import PodTemplate


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Tasks of one template that never started. ``possible`` is true if one pod fits on an empty node."""

    template: str
    tasks: int
    possible: bool
    reason: str


def of_outcomes(outcomes: Iterable[Outcome], nodes: Nodes) -> list[Refusal]:
    """Return the reasons of the tasks that never started, by template."""
    waiting: dict[PodTemplate, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.started is None:
            waiting.setdefault(outcome.task.template, []).append(outcome)
    return [_refusal(template, outcomes_of_template, nodes) for template, outcomes_of_template in waiting.items()]


def _refusal(template: PodTemplate, waiting: Sequence[Outcome], nodes: Nodes) -> Refusal:
    error = next((outcome.error for outcome in waiting if outcome.error), "")
    fitting, reasons = [], []
    for placed in nodes.types:
        reason = error or why_not(template, placed)
        if reason:
            reasons.append(f"{placed.offers.label}: {reason}")
        else:
            fitting.append(placed.offers.label)
    if fitting:
        pods = max(outcome.task.pods for outcome in waiting)
        gang = f" for {pods} pods at once" if pods > 1 else ""
        reason = f"one pod fits on an empty {', '.join(dict.fromkeys(fitting))}, but there were never enough free devices{gang}"
    else:
        reason = "; ".join(dict.fromkeys(reasons)) or "the fleet has no nodes"
    return Refusal(template=template.name, tasks=len(waiting), possible=bool(fitting), reason=reason)


def why_not(template: PodTemplate, placed: PlacedType) -> str:
    """Return why one pod does not fit on an empty node of a type; empty if it fits."""
    if reason := template.exclusion(placed.node):
        return reason
    allocator, empty = placed.allocator(), AllocatedState()
    try:
        if allocator.allocate(claims=template.claims, node=placed.node, allocated=empty, new_share_id=lambda: "") is not None:
            return ""
        if text := allocator.misjudged(claims=template.claims, node=placed.node, allocated=empty):
            return text
        reasons = obstacles.find(allocator.problem(claims=template.claims, node=placed.node, allocated=empty), {})
    except AllocationError as error:
        return str(error)
    return "; ".join(map(_text, reasons)) or "each request fits alone, but not all requests together"


def _text(obstacle: Obstacle) -> str:
    # The devices of another kind are usually the most, and say the least.
    nearest = max(obstacle.groups, key=lambda group: (-group.mismatch, len(group.devices)), default=None)
    detail = f" ({len(nearest.devices)}x {nearest.text})" if nearest is not None else ""
    return f"request {obstacle.request}: {obstacle.text}{detail}" if obstacle.request else f"{obstacle.text}{detail}"
