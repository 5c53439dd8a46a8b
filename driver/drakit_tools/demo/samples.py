"""The sample manifests of ``daemonset/samples`` and the device classes of ``daemonset/base``, as the wheel has them; no driver need be installed."""

import importlib.resources
import pathlib

from drakit.inputs import documents
from drakit_cluster.objects import json_types

_PACKAGE = "drakit_tools"


def names() -> tuple[str, ...]:
    """Return the names of the samples, in the order in which to apply them."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder().iterdir() if entry.name.endswith(".yaml")))


def load(name: str) -> list[json_types.Object]:
    """Return the objects of one sample, for example ``20-whole-gpu``."""
    return _objects((folder() / f"{name}.yaml").read_text("utf-8"))


def classes() -> list[json_types.Object]:
    """Return the device classes of ``daemonset/base``."""
    return _objects(classes_file().read_text("utf-8"))


def classes_file() -> pathlib.Path:
    """Return the path of the device classes' file."""
    return pathlib.Path(str(importlib.resources.files(_PACKAGE) / "demo" / "deviceclasses.yaml"))


def folder() -> pathlib.Path:
    """Return the folder of the samples."""
    return pathlib.Path(str(importlib.resources.files(_PACKAGE) / "samples"))


def _objects(text: str) -> list[json_types.Object]:
    return [document for document in documents.load_all(text) if isinstance(document, dict)]
