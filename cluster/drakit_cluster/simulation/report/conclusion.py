"""What a comparison of policies means, in words: which policy is best, by how much, and how sure that is. Pure.

A policy is better if more tasks start with it, and with equally many if they wait less in the mean. The comparison is over all seeds: the tasks of
one seed are one draw of chance, so a difference counts as certain only if no seed shows the opposite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drakit_cluster.simulation.report import results
from drakit_cluster.simulation.report.results import Result

_SURE = 5
"""The fewest seeds whose agreement is more than chance: five equal signs happen by chance once in sixteen times."""


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The policy that is best or ahead (empty if there is no difference, or nothing to compare), and two sentences: the comparison and the doubt."""

    best: str
    text: str
    doubt: str


def of(runs: Sequence[Sequence[Result]]) -> Conclusion:
    """Return the conclusion of the results of all policies, seed by seed."""
    policies = [result.policy.name for result in runs[0]]
    if len(policies) == 1:
        return Conclusion(best="", text=_single(runs), doubt="One policy was simulated, so nothing is compared.")
    missed = [[len(run[place].outcomes) - run[place].started for run in runs] for place in range(len(policies))]
    waits = [[run[place].waits.mean for run in runs] for place in range(len(policies))]
    order = sorted(range(len(policies)), key=lambda place: (sum(missed[place]), sum(waits[place])))
    best, second = order[:2]
    if sum(missed[best]) != sum(missed[second]):
        margins = [float(other - own) for own, other in zip(missed[best], missed[second], strict=True)]
        started = [results.mean([run[place].started for run in runs]) for place in (best, second)]
        total = results.mean([len(run[best].outcomes) for run in runs])
        text = f"{_number(started[0])} of {_number(total)} tasks started{_over(runs)}"
        text = f"{_lead(policies[best], margins)}: {text}, and {_number(started[1])} with {policies[second]}, the next best"
        return Conclusion(best=policies[best], text=_with_spread(text, margins, _number), doubt=_doubt(margins))
    if sum(waits[best]) != sum(waits[second]):
        margins = [other - own for own, other in zip(waits[best], waits[second], strict=True)]
        own, other = (results.mean(waits[place]) for place in (best, second))
        # The difference of the figures as they are written, so that the three agree.
        less = results.duration(round(other) - round(own))
        text = f"{_lead(policies[best], margins)}: its mean wait{_over(runs)} is {results.duration(own)}, {(other - own) / other:.0%} or {less} less"
        text = f"{text} than {results.duration(other)} with {policies[second]}, the next best"
        return Conclusion(best=policies[best], text=_with_spread(text, margins, results.duration), doubt=_doubt(margins))
    tied = [policies[place] for place in order if (sum(missed[place]), sum(waits[place])) == (sum(missed[best]), sum(waits[best]))]
    which = (
        "The policies do not differ" if len(tied) == len(policies) else f"{', '.join(tied)} are equally good, and better than the others"
    )
    return Conclusion(best="", text=f"{which}: as many tasks start, and they wait as long.", doubt=_seeds(len(runs)))


def _single(runs: Sequence[Sequence[Result]]) -> str:
    results_of = [run[0] for run in runs]
    started, total = sum(result.started for result in results_of), sum(len(result.outcomes) for result in results_of)
    delayed = sum(result.delayed for result in results_of)
    waits = results.duration(results.mean([result.waits.mean for result in results_of]))
    return f"{started} of {total} tasks start, {delayed} of them after waiting; the mean wait is {waits}."


def _lead(policy: str, margins: Sequence[float]) -> str:
    return f"No policy is clearly best; {policy} is ahead" if any(margin < 0 for margin in margins) else f"{policy} is best"


def _over(runs: Sequence[Sequence[Result]]) -> str:
    return f" over {len(runs)} seeds" if len(runs) > 1 else ""


def _with_spread(text: str, margins: Sequence[float], shown: Callable[[float], str]) -> str:
    if len(margins) == 1:
        return f"{text}."
    low, high = (f"-{shown(-value)}" if value < 0 else shown(value) for value in (min(margins), max(margins)))
    return f"{text} (the difference is from {low} to {high} by seed)."


def _doubt(margins: Sequence[float]) -> str:
    """Return how sure a difference is: by how many seeds show it, and how many show the opposite."""
    against, equal = sum(margin < 0 for margin in margins), sum(margin == 0 for margin in margins)
    if against:
        return f"Not certain: with {against} of {len(margins)} seeds the order is the opposite."
    if equal:
        return f"With {equal} of {len(margins)} seeds there is no difference, and with none the order is the opposite."
    return _seeds(len(margins))


def _seeds(number: int) -> str:
    if number == 1:
        return "This is one draw of the tasks: --seeds 5 shows how much chance matters."
    if number < _SURE:
        return f"All {number} seeds agree, which can be chance: --seeds {_SURE} is surer."
    return f"All {number} seeds agree."


def _number(value: float) -> str:
    return f"{value:.4g}"
