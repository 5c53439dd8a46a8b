"""Workload files and synthetic workloads."""

import collections

import pytest

from drakit_cluster.simulation.workload import reading, synthetic
from drakit_cluster.simulation.workload.templates import WorkloadError
from fakes import simulated_fleets as fleets

ROWS = "name,arrival,duration,template,count,gang\ntrain,1h,30m,gpu=2,1,4\nserve,0,,mig=1g.5gb+nic=1G,3,\n"
YAML = """
tasks:
- {name: train, arrival: 1h, duration: 30m, template: gpu=2, gang: 4}
- {name: serve, template: mig=1g.5gb+nic=1G, count: 3}
"""


@pytest.mark.parametrize("file, text", [("day.csv", ROWS), ("day.yaml", YAML)])
def test_csv_and_yaml_give_the_same_tasks(file: str, text: str) -> None:
    work = reading.read(file, text, reading.Catalogue([]))
    assert [(one.name, one.arrival, one.duration, one.template.name, one.pods) for one in work.tasks] == [
        *((f"serve-{number}", 0.0, None, "mig=1g.5gb+nic=1G", 1) for number in range(3)),
        ("train", 3600.0, 1800.0, "gpu=2", 4),
    ]
    assert len(work.templates) == 2


def test_a_template_may_be_a_resource_claim_template_or_several() -> None:
    made = {"metadata": {"name": "whole"}, "spec": {"spec": {"devices": {"requests": [{"name": "gpu"}]}}}}
    work = reading.read("w.csv", "template,arrival\nwhole+nic=1G,5\n", reading.Catalogue([made]))  # type: ignore[list-item]
    claims = work.tasks[0].template.claims
    assert next(claim["spec"] for claim in claims) == {"devices": {"requests": [{"name": "gpu"}]}}
    assert len(claims) == 2


@pytest.mark.parametrize(
    "text, message",
    [
        ("template,arival\ngpu=1,0\n", "unknown column arival"),
        ("template,arrival\ngpu=1,soon\n", "w.csv:2: 'soon' is not a time"),
        ("template,arrival\nlarge,0\n", "w.csv:2: large: no template of this name"),
        ("template,arrival\ngpu=99,0\n", "1 to 32 devices, not 99"),
        ("template,arrival\nnic=fast,0\n", "fast is not a bandwidth"),
        ("template,arrival,gang\ngpu=1,0,0\n", "gang: '0' is not a number"),
        ("template,arrival\n,0\n", "template: is missing"),
        ("template,arrival\n", "has no tasks"),
    ],
)
def test_a_mistake_names_file_and_row(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        reading.read("w.csv", text, reading.Catalogue([]))


@pytest.mark.parametrize(
    "text, message",
    [
        ("{}", "needs a list named tasks"),
        ("tasks: [1]", r"tasks\[0\]: is not a mapping"),
        ("tasks: [{tmpl: x}]", "unknown field tmpl"),
        ("a: [", "w.yaml"),
    ],
)
def test_a_mistake_in_yaml_names_the_task(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        reading.read("w.yaml", text, reading.Catalogue([]))


def test_the_same_seed_gives_the_same_tasks_and_the_weights_hold() -> None:
    mix = synthetic.Mix(tasks=4000, templates={"gpu=1": 1.0, "mig=1g.5gb": 3.0}, gangs={1: 9.0, 8: 1.0}, mean_duration=600)
    one, same, other = (synthetic.make(mix, seed, reading.Catalogue([])) for seed in (3, 3, 4))
    drawn = [[(task.arrival, task.duration, task.template.name, task.pods) for task in work.tasks] for work in (one, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    counts = collections.Counter(task.template.name for task in one.tasks)
    assert 2.6 < counts["mig=1g.5gb"] / counts["gpu=1"] < 3.4
    assert 540 < sum(task.duration or 0 for task in one.tasks) / len(one.tasks) < 660
    noon = sum(9 * 3600 <= task.arrival < 15 * 3600 for task in one.tasks)
    night = sum(task.arrival < 3 * 3600 or task.arrival >= 21 * 3600 for task in one.tasks)
    assert noon > 2 * night


def test_the_default_mix_asks_for_what_the_machine_has() -> None:
    asks = synthetic.default_weights(fleets.slices_of("dgx-a100-40gb-2gpu", "n"))
    assert {"mig=1g.5gb", "mig=7g.40gb", "gpu=1", "nic=1G"} <= asks.keys()
    assert asks["mig=1g.5gb"] > asks["mig=7g.40gb"]
