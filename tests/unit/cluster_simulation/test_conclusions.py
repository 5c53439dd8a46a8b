"""A comparison of policies says which is best, by how much, and whether the seeds agree."""

from collections.abc import Sequence

import pytest

from drakit_cluster.simulation.engine import policies
from drakit_cluster.simulation.engine.simulator import Outcome
from drakit_cluster.simulation.report import conclusion, results, tables
from drakit_cluster.simulation.report.measures import Series
from drakit_cluster.simulation.workload import reading, tasks

TEMPLATE = reading.Catalogue([]).template("gpu=1")
POLICIES = ("first-fit", "least-allocated", "most-allocated")


def result(policy: str, waits: Sequence[float | None]) -> results.Result:
    """The result of tasks that waited so many seconds, or never started."""
    outcomes = [
        Outcome(task=tasks.Task(name=f"t{number}", template=TEMPLATE, arrival=0, duration=1, pods=1), started=wait)
        for number, wait in enumerate(waits)
    ]
    series = Series(times=[], waiting=[], models=[])
    return results.Result(policy=policies.parse(policy), outcomes=outcomes, waits=results.Waits.of(outcomes), refused=[], series=series)


def simulated(*seeds: Sequence[Sequence[float | None]]) -> list[list[results.Result]]:
    """The results of the waits of each policy, seed by seed."""
    return [[result(policy, waits) for policy, waits in zip(POLICIES, run, strict=False)] for run in seeds]


def concluded(*seeds: Sequence[Sequence[float | None]]) -> conclusion.Conclusion:
    """The conclusion of the waits of each policy, seed by seed."""
    return conclusion.of(simulated(*seeds))


def test_more_tasks_that_start_count_more_than_shorter_waits() -> None:
    found = concluded([[None, 0], [600, 600]])
    assert found.best == "least-allocated"
    assert found.text == "least-allocated is best: 2 of 2 tasks started, and 1 with first-fit, the next best."
    assert found.doubt == "This is one draw of the tasks: --seeds 5 shows how much chance matters."


def test_with_equally_many_tasks_the_shorter_mean_wait_is_best_with_its_spread() -> None:
    found = concluded([[120, 120], [60, 60], [600, 600]], [[180, 180], [60, 60], [600, 600]])
    text = "least-allocated is best: its mean wait over 2 seeds is 1m, 60% or 1m30s less than 2m30s with first-fit, the next best"
    assert found.text == f"{text} (the difference is from 1m to 2m by seed)."
    assert found.doubt == "All 2 seeds agree, which can be chance: --seeds 5 is surer."


def test_seeds_that_disagree_leave_no_policy_clearly_best() -> None:
    found = concluded([[120], [60]], [[60], [90]])
    assert found.best == "least-allocated"
    assert found.text.startswith("No policy is clearly best; least-allocated is ahead: its mean wait over 2 seeds is 1m15s, ")
    assert found.text.endswith("(the difference is from -30s to 1m by seed).")
    assert found.doubt == "Not certain: with 1 of 2 seeds the order is the opposite."


def test_five_seeds_that_agree_are_sure_and_equal_ones_are_counted() -> None:
    assert concluded(*5 * [[[120], [60]]]).doubt == "All 5 seeds agree."
    assert (
        concluded([[120], [60]], [[60], [60]]).doubt == "With 1 of 2 seeds there is no difference, and with none the order is the opposite."
    )


@pytest.mark.parametrize(
    "waits, text",
    [
        ([[60], [60]], "The policies do not differ: as many tasks start, and they wait as long."),
        (
            [[60], [60], [90]],
            "first-fit, least-allocated are equally good, and better than the others: as many tasks start, and they wait as long.",
        ),
    ],
)
def test_policies_that_do_not_differ_are_not_ranked(waits: Sequence[Sequence[float]], text: str) -> None:
    found = concluded(waits)
    assert (found.best, found.text) == ("", text)


def test_one_policy_is_summed_up_and_not_compared() -> None:
    found = concluded([[0, 60, None]])
    assert found.text == "2 of 3 tasks start, 1 of them after waiting; the mean wait is 30s."
    assert found.doubt == "One policy was simulated, so nothing is compared."


def test_the_figures_of_the_conclusion_are_those_of_the_tables() -> None:
    runs = simulated([[120.4, 120.4], [60.3, 60.3]])
    text = conclusion.of(runs).text
    assert text == "least-allocated is best: its mean wait is 1m, 50% or 1m less than 2m with first-fit, the next best."
    table = tables.tasks(runs[0])
    assert [row[table.head.index("Mean wait")] for row in table.rows] == ["2m", "1m"]


def test_the_table_of_seeds_ends_with_the_means_that_the_conclusion_compares() -> None:
    runs = simulated([[120, None], [60, 60]], [[180, 180], [60, None]])
    table = tables.seeds(runs, [3, 4])
    assert table.head == ("Seed", "Policy", "Started", "Never started", "Mean wait")
    assert table.rows[0] == (3, "first-fit", 1, 1, "2m")
    assert table.rows[-2:] == [("mean", "first-fit", "1.5", "0.5", "2m30s"), ("mean", "least-allocated", "1.5", "0.5", "1m")]
    assert "its mean wait over 2 seeds is 1m, 60% or 1m30s less than 2m30s" in conclusion.of(runs).text
