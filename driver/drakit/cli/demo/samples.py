"""The sample manifests, as they are in ``daemonset/samples`` of the repository, and the device classes they name."""

import importlib.resources
import pathlib

import yaml

from drakit_cluster import json_types

NAMESPACE = "drakit-demo"
_PACKAGE = "drakit.cli"


def names() -> tuple[str, ...]:
    """The samples there are, in the order in which they are meant to be applied."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder().iterdir() if entry.name.endswith(".yaml")))


def load(name: str) -> list[json_types.Object]:
    """The objects of one sample, for example ``20-whole-gpu``."""
    return _objects((folder() / f"{name}.yaml").read_text("utf-8"))


def classes() -> list[json_types.Object]:
    """The device classes, as ``daemonset/base`` has them."""
    return _objects(classes_file().read_text("utf-8"))


def classes_file() -> pathlib.Path:
    """Where the device classes lie."""
    return pathlib.Path(str(importlib.resources.files(_PACKAGE) / "demo" / "deviceclasses.yaml"))


def folder() -> pathlib.Path:
    """Where the samples lie, to be applied by hand."""
    return pathlib.Path(str(importlib.resources.files(_PACKAGE) / "samples"))


def _objects(text: str) -> list[json_types.Object]:
    return [item for item in yaml.safe_load_all(text) if isinstance(item, dict)]
