"""Read settings from four sources: defaults, then a YAML file, then environment, then flags; later sources override earlier ones.

Keys are the same everywhere: ``node.name`` in the file is ``DRAKIT_NODE__NAME`` in the environment. An unknown key or ``DRAKIT_`` variable is an
error, because a misspelt setting that is ignored is worse than a driver that does not start. ``schema.current`` says which settings the program has.
"""

import difflib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic
import pydantic_core

from drakit.core import errors
from drakit.inputs import documents, files, validation
from drakit.settings import schema
from drakit.settings.groups import Api, Election, Log, Mock, Node, Publish, Report, Serve, Settings, Webhook
from drakit.settings.values import Folder, none_if_empty

__all__ = [
    "Api",
    "Election",
    "Folder",
    "Log",
    "Mock",
    "Node",
    "Publish",
    "Report",
    "Serve",
    "Settings",
    "Webhook",
    "defaults",
    "known_keys",
    "load",
    "none_if_empty",
]

ENV_PREFIX, ENV_NESTING = schema.ENV_PREFIX, schema.ENV_NESTING
SIZE_MAX = 1 << 20
"""The largest settings file in bytes."""

_REMOVED = {"serve.grpc_health": "was removed; probe serve.socket with drakit-probe (exec), or serve.address with httpGet"}


def load(flags: Mapping[str, object], *, file: pathlib.Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the effective settings from all four sources.

    ``flags`` are dotted keys (``node.name``) with the values given on the command line; None means not given. Raises SettingsError naming the
    key, what is wrong with it, and, for an unknown one, what was probably meant.
    """
    environ = os.environ if environ is None else environ
    program = schema.current()
    _check_environment(environ)
    merged = _read(file)
    _overlay(merged, _from_environment(environ))
    for key, value in flags.items():
        if value is not None:
            _overlay(merged, _nested(key.split("."), value))
    for group in merged:
        if group not in program.groups:
            raise errors.SettingsError(f"is not a setting{_suggest(str(group), {key for key, _ in program.known_keys()})}", key=str(group))
    try:
        return program.model.model_validate(merged)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise errors.SettingsError(f"{_explain(key, first)} ({_source(key, flags, file, environ)})", key=key) from error


def defaults() -> Settings:
    """Return the settings of this program without any source."""
    return schema.current().model()


def known_keys() -> Iterator[tuple[str, object]]:
    """Return every key of this program with its default."""
    return schema.current().known_keys()


def _read(file: pathlib.Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        content = _yaml(files.read_text(file, limit=SIZE_MAX), str(file))
    except OSError as error:
        raise errors.SettingsError(f"cannot read: {error.strerror}", key=str(file)) from error
    if content is not None and not isinstance(content, dict):
        raise errors.SettingsError("must be a mapping of groups such as node, api, nic", key=str(file))
    return content or {}


def _yaml(text: str, key: str) -> Any:
    try:
        return documents.load(text)
    except documents.DocumentError as error:
        raise errors.SettingsError(f"is not YAML: {error}", key=key) from error


def _check_environment(environ: Mapping[str, str]) -> None:
    program = schema.current()
    known_names = {program.variable(key) for key, _ in program.known_keys()}
    for name in sorted(name for name in environ if program.is_variable(name) and name not in known_names):
        prefix = name.partition("_")[0]
        if reason := next((reason for key, reason in _REMOVED.items() if name == program.variable(key)), ""):
            raise errors.SettingsError(reason, key=name)
        raise errors.SettingsError(f"is not a setting, and every {prefix}_ variable is read as one{_suggest(name, known_names)}", key=name)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    program, layer = schema.current(), dict[str, Any]()
    for key, default in program.known_keys():
        name = program.variable(key)
        text = environ.get(name)
        if text is not None:
            _overlay(layer, _nested(key.split("."), _yaml(text, name) if isinstance(default, tuple) else text))
    return layer


def _nested(path: list[str], value: object) -> dict[str, Any]:
    return {path[0]: _nested(path[1:], value) if len(path) > 1 else value}


def _overlay(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _overlay(base[key], value)
        else:
            base[key] = value


def _source(key: str, flags: Mapping[str, object], file: pathlib.Path | None, environ: Mapping[str, str]) -> str:
    """Return the source of a key's value: the last source that has the key or a part of it."""
    if any(value is not None and (key == name or key.startswith(f"{name}.")) for name, value in flags.items()):
        return "set by a flag"
    variables = {schema.current().variable(name): name for name, _ in known_keys()}
    named = next((name for name, of in variables.items() if name in environ and (key == of or key.startswith(f"{of}."))), None)
    return f"set by {named} in the environment" if named else f"set in {file}" if file else "set by a flag"


def _explain(key: str, error: "pydantic_core.ErrorDetails") -> str:
    if error["type"] in ("extra_forbidden", "invalid_key", "unexpected_keyword_argument"):
        return _REMOVED.get(key) or f"is not a setting{_suggest(key, {name for name, _ in known_keys()})}"
    return validation.reason(error)


def _suggest(name: str, known_keys: set[str]) -> str:
    close = difflib.get_close_matches(name, known_keys, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known_keys))}"
