"""The schemas of Kubernetes' objects, in which unknown fields are errors, as ``kubernetes_validate`` has them.

Its own function reads two megabytes of definitions for each object; here a process reads them once.
"""

import functools
import json
import pathlib
from typing import Any

import jsonschema
import kubernetes_validate
import referencing

VERSION = "1.36"
_FOLDER = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{VERSION}.0-local-strict"


def validate(item: Any) -> None:
    """Raise jsonschema.ValidationError where an object does not match the schema of its kind, or FileNotFoundError where that has none."""
    group, _, version = item["apiVersion"].rpartition("/")
    name = "-".join(filter(None, (item["kind"].lower(), group.partition(".")[0], version)))
    jsonschema.Draft202012Validator(_read(f"{name}.json"), registry=_registry()).validate(item)


@functools.cache
def _read(name: str) -> Any:
    return json.loads((_FOLDER / name).read_text("utf-8"))


@functools.cache
def _registry() -> Any:
    definitions = referencing.Resource.from_contents(_read("_definitions.json"))
    return (definitions @ referencing.Registry()).crawl()
