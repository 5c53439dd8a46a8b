"""Workload files: CSV with a header, or YAML with a list ``tasks``. Both have the same fields.

``name``, ``arrival`` (seconds, or 90s, 10m, 2h, 1d), ``duration`` (the same; empty for no end), ``template`` (names of ResourceClaimTemplates
or shorthand, joined by +), ``count`` (that many tasks), ``gang`` (pods of one task that start together), and in YAML ``nodeSelector``.
"""

import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping

from drakit.inputs import documents
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.simulation.workload import tasks, templates
from drakit_cluster.simulation.workload.tasks import Task, Workload
from drakit_cluster.simulation.workload.templates import PodTemplate, WorkloadError

FIELDS = ("name", "arrival", "duration", "template", "count", "gang", "nodeSelector")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
COUNT_MAX = 1_000_000


class Catalogue:
    """Templates by the text that names them; equal texts give one template."""

    def __init__(self, claim_templates: Iterable[Object]) -> None:
        self._claims = {
            json_types.text(template, "metadata", "name"): json_types.mapping(template, "spec", "spec") for template in claim_templates
        }
        self._templates: dict[tuple[str, str], PodTemplate] = {}

    def template(self, text: str, node_selector: Object | None = None) -> PodTemplate:
        """Return the template that ``text`` names. Raises WorkloadError for a name that is neither a template nor shorthand."""
        selector = node_selector or {}
        key = (text, str(sorted(selector.items())))
        if key not in self._templates:
            plain = self._read(text)
            self._templates[key] = dataclasses.replace(plain, name=text, node_selector=selector)
        return self._templates[key]

    def _read(self, text: str) -> PodTemplate:
        names = [part.strip() for part in text.split("+")]
        if not any(name in self._claims for name in names):
            return templates.from_shorthand(text)
        parts = [
            templates.from_claim_spec(f"{text}/{name}", self._claims[name]) if name in self._claims else templates.from_shorthand(name)
            for name in names
        ]
        return templates.combined(text, parts)


def read(file: str, text: str, catalogue: Catalogue) -> Workload:
    """Return the workload of a file; a name that ends in .csv is read as CSV. Raises WorkloadError with file and row."""
    rows = _csv(file, text) if file.endswith(".csv") else _yaml(file, text)
    file_tasks: list[Task] = []
    for where, row in rows:
        try:
            file_tasks += _tasks(row, len(file_tasks), catalogue)
        except WorkloadError as error:
            raise WorkloadError(f"{where}: {error}") from error
    if not file_tasks:
        raise WorkloadError(f"{file}: has no tasks")
    return tasks.ordered(file_tasks)


def seconds(text: str) -> float:
    """Return a time in seconds: a number, or one with s, m, h or d. Raises WorkloadError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS else (text, "s")
    try:
        value = float(number) * _SECONDS[unit]
    except ValueError:
        raise WorkloadError(f"{text!r} is not a time: write seconds, or 90s, 10m, 2h, 1d") from None
    if not 0 <= value < float("inf"):
        raise WorkloadError(f"{text!r} is not a time: it must be 0 or more, and finite")
    return value


def _csv(file: str, text: str) -> list[tuple[str, Object]]:
    reader = csv.DictReader(io.StringIO(text))
    if unknown := set(reader.fieldnames or ()) - set(FIELDS):
        raise WorkloadError(f"{file}: unknown column {min(unknown)}; known are {', '.join(FIELDS[:-1])}")
    return [
        (f"{file}:{number}", {name: value for name, value in row.items() if isinstance(value, str)}) for number, row in enumerate(reader, 2)
    ]


def _yaml(file: str, text: str) -> list[tuple[str, Object]]:
    try:
        content: Json = documents.load(text)
    except documents.DocumentError as error:
        raise WorkloadError(f"{file}: {error}") from error
    listed = content.get("tasks") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise WorkloadError(f"{file}: needs a list named tasks")
    rows: list[tuple[str, Object]] = []
    for number, row in enumerate(listed):
        where = f"{file}: tasks[{number}]"
        if not isinstance(row, dict):
            raise WorkloadError(f"{where}: is not a mapping with {', '.join(FIELDS)}")
        if unknown := row.keys() - set(FIELDS):
            raise WorkloadError(f"{where}: unknown field {min(unknown)}; known are {', '.join(FIELDS)}")
        rows.append((where, row))
    return rows


def _tasks(row: Object, tasks_before: int, catalogue: Catalogue) -> list[Task]:
    template = _text(row, "template")
    if not template:
        raise WorkloadError(f"template: is missing; name a ResourceClaimTemplate, or write {templates.SHORTHAND}")
    duration = _text(row, "duration")
    name = _text(row, "name")
    count = _count(row, "count")
    return [
        Task(
            name=(name or f"task-{tasks_before + number}") if count == 1 else f"{name or f'task-{tasks_before}'}-{number}",
            template=catalogue.template(template, json_types.mapping(row, "nodeSelector")),
            arrival=seconds(_text(row, "arrival") or "0"),
            duration=seconds(duration) if duration else None,
            pods=_count(row, "gang"),
        )
        for number in range(count)
    ]


def _text(row: Mapping[str, Json], name: str) -> str:
    value = row.get(name)
    if isinstance(value, (dict, list, bool)):
        raise WorkloadError(f"{name}: {value!r} is not a text or number")
    return "" if value is None else str(value).strip()


def _count(row: Mapping[str, Json], name: str) -> int:
    text = _text(row, name) or "1"
    if not text.isdecimal() or not 1 <= int(text) <= COUNT_MAX:
        raise WorkloadError(f"{name}: {text!r} is not a number from 1 to {COUNT_MAX}")
    return int(text)
