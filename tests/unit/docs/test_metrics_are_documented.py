"""The page of metrics names every metric with its labels' values, and no metric that there is not."""

import pathlib
import re

from fakes.metrics_page import every_family

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_every_metric_is_on_the_page_and_no_other() -> None:
    names = set(re.findall(r"^# TYPE (drakit_\w+) ", every_family(), re.MULTILINE))
    assert names == set(re.findall(r"^\| `(drakit_\w+)`", PAGE.read_text(), re.MULTILINE))


def test_every_value_of_a_label_is_on_the_page() -> None:
    found = re.findall(r'(verb|outcome|phase|state|health|tainted|direction|owner|reason)="(\w+)"', every_family())
    text = PAGE.read_text()
    assert [value for _, value in found if not re.search(rf"\b{value}\b", text)] == []
    assert {label for label, _ in found} == {"verb", "outcome", "phase", "state", "health", "tainted", "direction", "owner", "reason"}
