"""Types of single settings, with their checks."""

import pathlib
from typing import Annotated

import pydantic


def none_if_empty(value: object) -> object:
    """Return None for an empty text, which stands for a setting that is not given, and any other value unchanged."""
    return None if value == "" else value


def _absolute(value: pathlib.Path) -> pathlib.Path:
    if not value.is_absolute():
        raise ValueError(f"{str(value)!r} must be an absolute path")
    return value


Folder = Annotated[pathlib.Path, pydantic.AfterValidator(_absolute)]
"""An absolute path."""
