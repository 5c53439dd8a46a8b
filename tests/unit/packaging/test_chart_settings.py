"""The chart's schema of settings is made from the settings of the program; UPDATE_GOLDEN=1 writes it anew."""

import json
import os
from collections.abc import Mapping
from typing import Any

import pydantic

from drakit import machines, settings
from drakit.settings import schema
from fakes import manifests

FILE = manifests.ROOT / "daemonset" / "chart" / "values.schema.json"
GROUPS = [name for name in (*settings.Settings.model_fields, "gpu", "nic") if name not in {"node", "mock"}]
"""Groups of settings in the chart. Those of node and mock are values of the chart, because mounts and privileges depend on them."""
KEPT = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "required")


def plain(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a schema without references, titles and defaults. A quantity is a text or a number; nothing is null."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return {"type": ["string", "number"]} if name == "Quantity" else plain(definitions[name], definitions)
    if "anyOf" in part:
        choices = [plain(choice, definitions) for choice in part["anyOf"] if choice.get("type") != "null"]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    made = {key: part[key] for key in KEPT if key in part}
    if "items" in part:
        made["items"] = plain(part["items"], definitions)
    if isinstance(part.get("additionalProperties"), Mapping):
        made["additionalProperties"] = plain(part["additionalProperties"], definitions)
    if "properties" in part:
        made["additionalProperties"] = False
        made["properties"] = {name: plain(field, definitions) for name, field in part["properties"].items()}
    if isinstance(part.get("additionalProperties"), Mapping):
        made["additionalProperties"] = plain(part["additionalProperties"], definitions)
    return made


def of_settings() -> dict[str, Any]:
    """Return the schema of the chart's value ``settings``."""
    groups: Mapping[str, Any] = {name: field.annotation for name, field in schema.current().model.model_fields.items()}
    parts = {name: pydantic.TypeAdapter(groups[name]).json_schema() for name in GROUPS}
    made = {name: plain(part, part.get("$defs", {})) for name, part in parts.items()}
    return {"type": "object", "additionalProperties": False, "properties": made}


def test_the_charts_schema_has_every_setting_to_the_leaf() -> None:
    document = json.loads(FILE.read_text("utf-8"))
    if os.environ.get("UPDATE_GOLDEN"):
        document["properties"]["settings"] = of_settings()
        FILE.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    assert document["properties"]["settings"] == of_settings(), "run it with UPDATE_GOLDEN=1"


def test_the_chart_takes_the_known_machines_and_the_path_of_a_machine_file() -> None:
    document = json.loads(FILE.read_text("utf-8"))
    known = sorted({*machines.names("gpus"), *machines.names("nics")})
    machine = {"type": "string", "anyOf": [{"enum": ["", *known]}, {"pattern": "/"}]}
    if os.environ.get("UPDATE_GOLDEN"):
        document["properties"]["mock"]["properties"]["machine"] = machine
        FILE.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    assert document["properties"]["mock"]["properties"]["machine"] == machine, "run it with UPDATE_GOLDEN=1"


def test_no_object_of_the_charts_schema_takes_any_field() -> None:
    """Texts by any name are labels, annotations and amounts; sources of extra volumes are checked by the API server."""

    def open_objects(part: Any, path: str) -> list[str]:
        if isinstance(part, list):
            return [found for number, item in enumerate(part) for found in open_objects(item, f"{path}[{number}]")]
        if not isinstance(part, dict):
            return []
        is_open = part.get("type") in ("object", ["object", "null"]) and "additionalProperties" not in part
        return [path] * is_open + [found for name, item in part.items() for found in open_objects(item, f"{path}.{name}")]

    found = open_objects(json.loads(FILE.read_text("utf-8")), "")
    assert [path for path in found if not path.startswith(".definitions.volumes.items.properties.")] == [".properties.global"]
