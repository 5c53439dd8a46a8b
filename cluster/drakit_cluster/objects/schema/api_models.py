"""The descriptions of Kubernetes' API, read from the sources of the installed package ``kubernetes``.

Its models are generated from Kubernetes' OpenAPI document: a class for each schema, with a description of each field. This module parses the
head of a class when somebody asks for it. It does not import the package, because that takes seconds. A package without such classes (before
version 37) gives no texts, and ``kubectl explain`` then lists fields without descriptions.
"""

import ast
import functools
import importlib.util
import pathlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from drakit_cluster.objects.resources import Resource

_IMPORT = re.compile(r"^ *from kubernetes\.client\.models\.(\w+) import (\w+)", re.MULTILINE)
_END_OF_FIELDS = "    __properties"
_END_OF_TEXT = "Attributes:\n"


@dataclass(frozen=True, kw_only=True)
class FieldText:
    """One field: its description, and its type as the package writes it, such as ``List[V1Container]`` or ``Dict[str, str]``."""

    text: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Model:
    """One schema: its description, and its fields by their names in JSON."""

    text: str = ""
    fields: Mapping[str, FieldText] = field(default_factory=dict)
    required: tuple[str, ...] = ()


def name_of(resource: Resource) -> str:
    """Return the name of a kind's model. A kind that two groups have is named after its group as well."""
    name = f"{resource.version.capitalize()}{resource.kind}"
    group = (resource.group.partition(".")[0] or "core").capitalize()
    return name if name in _modules() else f"{group}{name}"


def has_kind(kind: str) -> bool:
    """Return whether version v1 of some group has a kind. Without models it has every kind."""
    names = _modules()
    return not names or any(name.endswith(f"V1{kind}") for name in names)


@functools.lru_cache(maxsize=1024)
def model(name: str) -> Model:
    """Return a model; an empty one where the package does not have it."""
    if (path := _modules().get(name)) is None:
        return Model()
    source = path.read_text("utf-8")
    start, end = source.find(f"\nclass {name}("), source.find(_END_OF_FIELDS)
    if start < 0 or end < 0:
        return Model()
    try:
        (body,) = ast.parse(source[start:end]).body
    except (SyntaxError, ValueError):
        return Model()
    return _read(body) if isinstance(body, ast.ClassDef) else Model()


@functools.cache
def _modules() -> Mapping[str, pathlib.Path]:
    """Return the file of each model."""
    spec = importlib.util.find_spec("kubernetes")
    if spec is None or not spec.submodule_search_locations:
        return {}
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "client" / "models"
    try:
        index = (folder / "__init__.py").read_text("utf-8")
    except OSError:
        return {}
    return {name: folder / f"{module}.py" for module, name in _IMPORT.findall(index)}


def _read(body: ast.ClassDef) -> Model:
    annotated = {line.target.id: line.value for line in body.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)}
    types, names = (_strings(annotated.pop(table, None)) for table in ("openapi_types", "attribute_map"))
    fields, required = {}, []
    for attribute, json_name in names.items():
        options = {keyword.arg: keyword.value for keyword in _keywords(annotated.get(attribute))}
        text = options.get("description")
        written = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
        fields[json_name] = FieldText(text=written, type=types.get(attribute, "object"))
        is_given = annotated.get(attribute) is None or isinstance(annotated.get(attribute), ast.Call)
        if is_given and "default" not in options:
            required.append(json_name)
    summary = (ast.get_docstring(body) or "").partition(_END_OF_TEXT)[0].strip()
    return Model(text=summary, fields=fields, required=tuple(required))


def _keywords(value: ast.expr | None) -> list[ast.keyword]:
    return value.keywords if isinstance(value, ast.Call) else []


def _strings(table: ast.expr | None) -> dict[str, str]:
    return dict(_pairs(table)) if isinstance(table, ast.Dict) else {}


def _pairs(table: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
            yield str(key.value), str(value.value)
