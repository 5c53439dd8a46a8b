"""What a simulation reports: waits, use, fragmentation, refusals, and the page for people."""

import importlib
import json
import re
from collections.abc import Sequence

import pytest

from drakit_cluster.simulation.engine import policies
from drakit_cluster.simulation.fleet import groups
from drakit_cluster.simulation.report import conclusion, results
from drakit_cluster.simulation.workload import reading, tasks
from fakes import simulated_fleets as fleets

MACHINE = "dgx-a100-40gb-2gpu"
ABOUT = results.Provenance(
    tasks="synthetic, mix gpu=1:1",
    versions="drakit 1, rules of Kubernetes 1.37",
    seeds=(7,),
    command="drakit simulate -p a<b",
    date="2026-11-29",
)
CATALOGUE = reading.Catalogue([])


def html(fleet: groups.Fleet, work: tasks.Workload, found: Sequence[results.Result]) -> str:
    """The page. What draws it takes long to import, so that happens in these tests and not where every worker collects this file."""
    return str(importlib.import_module("drakit_cluster.simulation.report.page").html(fleet, work, [found], conclusion.of([found]), ABOUT))


def task(name: str, template: str, arrival: float, duration: float | None = None, pods: int = 1) -> tasks.Task:
    return tasks.Task(name=name, template=CATALOGUE.template(template), arrival=arrival, duration=duration, pods=pods)


def run(*listed: tasks.Task, policy: str = "first-fit") -> results.Result:
    return results.run(fleets.fleet_of({MACHINE: 1}), tasks.ordered(listed), policies.parse(policy))


def test_waits_are_from_arrival_to_start_and_later_tasks_may_pass() -> None:
    found = run(
        task("a", "gpu=1", 0, 100),
        task("b", "gpu=2", 10, 50),
        task("c", "mig=1g.5gb", 20, 200),
        task("d", "gpu=1", 30, 10),
    )
    assert [outcome.started for outcome in found.outcomes] == [0, 220, 20, 100]
    assert (found.waits.p50, found.waits.longest, found.delayed) == (0, 210, 2)
    assert found.waits.mean == pytest.approx((0 + 210 + 0 + 70) / 4)


def test_a_gang_starts_whole_or_waits_and_holds_nothing_meanwhile() -> None:
    found = run(task("a", "gpu=1", 0, 100), task("gang", "gpu=1", 10, 50, pods=2), task("b", "gpu=1", 20, 30))
    assert [outcome.started for outcome in found.outcomes] == [0, 100, 20]
    assert len(found.outcomes[1].grants) == 2


def test_use_is_weighted_by_time_and_the_larger_of_memory_and_processors() -> None:
    found = run(task("a", "gpu=1", 0, 60), task("end", "mig=1g.5gb", 120, 1))
    gpus = next(model for model in found.series.models if "A100" in model.model)
    assert gpus.count == 2
    assert gpus.used[0] == 0.5
    assert sum(gpus.used) / len(gpus.used) == pytest.approx(0.25, abs=0.001)


def test_fragmentation_is_the_free_share_that_the_next_pods_cannot_use() -> None:
    """Seven eighths of the memory are free beside a 1g; half of the pods ask for a whole GPU and cannot have it there."""
    found = run(task("a", "mig=1g.5gb", 0), task("b", "gpu=1", 0), task("c", "mig=1g.5gb", 0), task("d", "gpu=1", 100))
    gpus = next(model for model in found.series.models if "A100" in model.model)
    free = 1 - 2 / 7
    assert gpus.used[-1] == pytest.approx((1 + 2 / 7) / 2, abs=0.01)
    assert gpus.fragmented[-1] == pytest.approx(free / 2 / 2, abs=0.01)


def test_refused_tasks_name_their_obstacle() -> None:
    found = run(task("a", "mig=9g.90gb", 0), task("b", "gpu=2", 0), task("c", "gpu=2", 1), policy="first-fit")
    assert [(one.template, one.tasks, one.possible) for one in found.refused] == [("mig=9g.90gb", 1, False), ("gpu=2", 1, True)]
    assert "not selected by the request" in found.refused[0].reason
    assert found.refused[1].reason == f"one pod fits on an empty {MACHINE}, but there were never enough free devices"


def various() -> tuple[groups.Fleet, tasks.Workload]:
    """Tasks that start at once, wait, and never start."""
    waiting = [task("first", "gpu=2", 0, 30), task("second", "gpu=2", 1, 5)]
    return fleets.fleet_of({MACHINE: 1}), tasks.ordered([task("<b>&", "mig=1g.5gb", 0, 5), *waiting, task("late", "mig=9g.9gb", 60)])


def of_both_policies(fleet: groups.Fleet, work: tasks.Workload) -> list[results.Result]:
    return [results.run(fleet, work, policies.parse(text)) for text in ("first-fit", "least-fragmentation")]


@pytest.fixture(scope="module")
def page_of_various() -> str:
    fleet, work = various()
    return html(fleet, work, of_both_policies(fleet, work))


def test_the_same_input_gives_the_same_document_and_page(page_of_various: str) -> None:
    fleet, work = various()
    assert html(fleet, work, of_both_policies(fleet, work)) == page_of_various
    work = tasks.ordered([task(f"t{number}", "mig=1g.5gb", number, 50) for number in range(20)])
    made = [json.dumps(results.document(fleet, work, of_both_policies(fleet, work), placements=True)) for _ in range(2)]
    assert made[0] == made[1]
    placements = json.loads(made[0])["policies"][0]["placements"]
    assert placements[0] == {
        "task": "t0",
        "template": "mig=1g.5gb",
        "arrival": 0,
        "started": 0,
        "ended": 50,
        "pods": [{"node": f"{MACHINE}-0000", "devices": ["gpu.drakit.dev/gpu-0-mig-1g5gb-19-6"]}],
    }


def test_the_page_needs_nothing_else_and_follows_light_and_dark(page_of_various: str) -> None:
    text = page_of_various
    assert not re.search(r"<script|<link|<img|src=|@import", text)
    assert set(re.findall(r'https?://[^"]+', text)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "prefers-color-scheme: dark" in text
    assert "stroke: var(--rule)" in text
    assert text.count("<svg") >= 3
    assert "Tasks that never started" in text


@pytest.fixture(scope="module")
def page_of_one_task() -> str:
    work, fleet = tasks.ordered([task("a", "gpu=1", 0, 5)]), fleets.fleet_of({MACHINE: 1})
    return html(fleet, work, [results.run(fleet, work, policies.parse(name)) for name in ("first-fit", "least-allocated")])


def test_a_page_without_waits_has_a_sentence_in_place_of_the_plot(page_of_one_task: str) -> None:
    assert "Every task that started, started at once." in page_of_one_task
    assert "No pod waited before the last arrival." in page_of_one_task
    assert "waited at most" not in page_of_one_task


def test_the_page_says_command_seed_versions_mix_date_and_conclusion_first(page_of_one_task: str) -> None:
    head = page_of_one_task[: page_of_one_task.index("<h2>")]
    assert "The policies do not differ: as many tasks start, and they wait as long." in head
    assert "drakit simulate -p a&lt;b" in head
    for fact in ("synthetic, mix gpu=1:1", "<dt>Seed</dt><dd>7</dd>", "rules of Kubernetes 1.37", "2026-11-29"):
        assert fact in head


def test_plots_and_tables_have_a_form_for_narrow_screens(page_of_one_task: str) -> None:
    text = page_of_one_task
    assert text.count('<div class="broad"') == text.count('<div class="narrow"') > 0
    assert '<td class="n" data-label="Started">1</td>' in text
    for label in ("Mean wait", "p50 wait", "p95 wait", "Max wait", "Mean use", "Peak use", "Mean fragmented", "Peak fragmented"):
        assert f'data-label="{label}"' in text, "on a phone a row has no other heading"
    identifiers = re.findall(r' id="([^"]+)"', text)
    assert len(set(identifiers)) == len(identifiers), "the two forms share no identifiers"
