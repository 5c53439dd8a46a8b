"""The dashboard asks for metrics and labels that the drivers have."""

import json
import re
from typing import Any

import pytest

from fakes import manifests, metrics_page

TARGET_LABELS = {"namespace", "pod", "node"}
"""What Prometheus adds to each sample of a pod, by the PodMonitor."""


def dashboard() -> Any:
    return json.loads((manifests.ROOT / "daemonset" / "chart" / "dashboards" / "drakit.json").read_text())


def queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def labels_by_sample() -> dict[str, set[str]]:
    """The labels of each name of a sample: of a histogram those with _bucket, _sum and _count, not its own."""
    found: dict[str, set[str]] = {}
    for line in metrics_page.every_family().splitlines():
        if sample := re.match(r"(\w+)(?:\{(.*)\})? ", line):
            found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2] or ""))
    return found


def test_every_query_is_about_metrics_that_exist() -> None:
    named = {name for query in queries() for name in re.findall(r"\b(?:drakit|process)_\w+", query)}
    assert len(named) > 20
    assert named - labels_by_sample().keys() - {"process_cpu_seconds_total", "process_resident_memory_bytes"} == set()


def test_every_metric_of_the_drivers_is_shown() -> None:
    families = set(re.findall(r"^# TYPE (drakit_\w+) ", metrics_page.every_family(), re.MULTILINE))
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for query in queries() for name in re.findall(r"\bdrakit_\w+", query)}
    assert families - named == {"drakit_listening"}, "is 1 wherever Prometheus can read it"


@pytest.mark.parametrize("query", queries())
def test_every_label_of_a_query_is_one_of_its_metrics(query: str) -> None:
    known = labels_by_sample()
    metrics = re.findall(r"\b(drakit_\w+)\{", query)
    labels = set.union(*(known[name] for name in metrics)) if metrics else set()
    matched = {label for inner in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=~?\"", inner)}
    grouped = {label for inner in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", inner)}
    assert (matched | grouped) - labels - TARGET_LABELS == set()


@pytest.mark.parametrize("query", queries())
def test_every_variable_of_a_query_is_one_of_the_dashboard(query: str) -> None:
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert set(re.findall(r"\$(\w+)", query)) - variables - {"__rate_interval"} == set()


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    squares = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(squares)) == len(squares)
    assert max(x for x, _ in squares) < 24
