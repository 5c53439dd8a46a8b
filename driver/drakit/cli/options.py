"""Options that several commands share, and the settings that they set.

A folder of --folder is rejected if another user could change or replace it.
"""

import contextlib
import difflib
import enum
import functools
import inspect
import os
import pathlib
import stat
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Concatenate, ParamSpec

import typer

from drakit import machines
from drakit import settings as values
from drakit.cli import terminal
from drakit.core import errors
from drakit.inputs import documents
from drakit.settings import schema
from drakit.telemetry import logs


def machine_names(incomplete: str) -> list[str]:
    """Return the names of mock machines that begin like this, for a shell's completion."""
    return [name for name in machines.names() if name.startswith(incomplete)]


Mock = Annotated[
    str | None,
    typer.Option(
        "--mock",
        metavar="MACHINE",
        help="Use mock hardware of this machine: a name such as dgx-a100-40gb-2gpu, or the path of a machine file.",
        autocompletion=machine_names,
    ),
]
Folder = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--folder", metavar="DIR", help="Keep all files (journal, CDI files, mock hardware) below DIR instead of the system folders."
    ),
]
Config = Annotated[pathlib.Path | None, typer.Option("--config", metavar="FILE", help="YAML file with settings.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help=r"Set one setting to a YAML value: --set nic.include='\[eth1, eth2]'. May be repeated."
    ),
]
Families = Annotated[
    list[str] | None, typer.Option("--family", metavar="NAME", help="Use only this device family, such as gpu or nic. May be repeated.")
]
Kubeconfig = Annotated[
    pathlib.Path | None, typer.Option("--kubeconfig", help="Path of the kubeconfig. Default: the pod's service account.")
]
WithoutApi = Annotated[bool, typer.Option("--no-api", help="Do not contact the API server.")]
Node = Annotated[str | None, typer.Option("--node", metavar="NAME", help="Name of this node.")]


Rest = ParamSpec("Rest")

_KEY = "--folder"


class Format(enum.StrEnum):
    """The output format of a result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print only the result, without progress, explanations or notes. The exit status reports success."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="table for people, json or yaml for machines.")]


def read(
    *,
    config: pathlib.Path | None = None,
    assignments: Sequence[str] | None = None,
    mock: str | None = None,
    folder: pathlib.Path | None = None,
    node: str | None = None,
    local: bool = False,
    flags: Mapping[str, object] | None = None,
) -> values.Settings:
    """Return the settings of a command, and configure logging; raises SettingsError.

    A ``local`` command with mock hardware keeps its state in the user's state folder, so it needs no root. If the configuration file or the
    environment names the same machine, as in the container of a mock driver, the command uses that machine's folder. A ``local`` command logs only
    errors unless a log level is set, because its output already reports what failed.
    """
    if local and mock is not None and folder is None and values.load({}, file=config).mock.machine != mock:
        folder = state_folder() / (pathlib.Path(mock).stem if "/" in mock else mock)
    given: dict[str, object] = {"mock.machine": mock, "node.name": node, **(flags or {})}
    if folder is not None:
        check_own(folder)
        given |= {key: value for key, value in places(folder).items() if key.partition(".")[0] in schema.current().groups}
    for text in assignments or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise errors.SettingsError("write KEY=VALUE", key=text)
        given[key] = _value(key, value)
    settings = values.load(given, file=config)
    level = "error" if local and "level" not in settings.log.model_fields_set else settings.log.level
    logs.follow(*(kind.package for kind in schema.current().families))
    logs.setup(level=logs.Level[level.upper()], style=logs.Style(settings.log.format))
    return settings


def on_a_node(command: Callable[Concatenate[values.Settings, Rest], None]) -> Callable[..., None]:
    """Return a command with the options that select a node, before its own options. It is called with the ``local`` settings."""

    def about(
        mock: Mock = None, folder: Folder = None, node: Node = None, config: Config = None, assignments: Set = None, **rest: object
    ) -> None:
        settings = read(config=config, assignments=assignments, mock=mock, folder=folder, node=node, local=True)
        typing.cast("Callable[..., None]", command)(settings, **rest)

    *common, _ = inspect.signature(about, eval_str=True).parameters.values()
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    words = [
        parameter for parameter in own if any(isinstance(part, typer.models.ArgumentInfo) for part in typing.get_args(parameter.annotation))
    ]
    parameters = [*words, *common, *(parameter for parameter in own if parameter not in words)]
    functools.update_wrapper(about, command)
    about.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    about.__signature__ = inspect.Signature([parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters])  # type: ignore[attr-defined]
    return about


def quietly(command: Callable[Rest, None]) -> Callable[..., None]:
    """Return a command with the option --quiet after its own options."""

    @functools.wraps(command)
    def call(*, quiet: bool = False, **given: object) -> None:
        token = terminal.QUIET.set(quiet)
        try:
            typing.cast("Callable[..., None]", command)(**given)
        finally:
            terminal.QUIET.reset(token)

    own = inspect.signature(command, eval_str=True).parameters.values()
    quiet = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), quiet]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _value(key: str, text: str) -> object:
    """Return a setting's value parsed as YAML. An empty value is an empty text, because None means that the setting is not given."""
    try:
        value = documents.load(text)
    except documents.DocumentError as error:
        raise errors.SettingsError(f"{text!r} is not YAML", key=key) from error
    return "" if value is None else value


def places(folder: pathlib.Path) -> dict[str, object]:
    """Return the settings that keep all files below one folder."""
    folder = folder.absolute()
    return {
        "node.plugins_dir": folder / "plugins",
        "node.registry_dir": folder / "plugins_registry",
        "node.cdi_dir": folder / "cdi",
        "mock.dir": folder / "mock",
    }


def state_folder() -> pathlib.Path:
    """Return the user's state folder (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return pathlib.Path(base or pathlib.Path.home() / ".local" / "state") / "drakit"
    except RuntimeError as error:
        raise errors.SettingsError("this user has no home folder; add --folder DIR", key="--folder") from error


def meant(word: str, choices: Sequence[str]) -> str:
    """Return a hint with the closest choice, or with all choices if none is close."""
    close = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(choices) or 'none'}"


def one_node(names: Sequence[str] | None) -> str | None:
    """Return the name of a mock machine's node, None without one; raises ConfigError for several."""
    if names and len(names) > 1:
        raise errors.ConfigError(f"--node: a mock machine is one node, not {' and '.join(names)}")
    return names[0] if names else None


def resolved(path: pathlib.Path, key: str) -> pathlib.Path:
    """Return the path without symbolic links; it may be missing. Raises SettingsError, about ``key``, for links that lead back to themselves."""
    try:
        # ``resolve`` reports such a loop differently in each version of Python.
        with contextlib.suppress(FileNotFoundError):
            path.stat()
        return path.resolve()
    except OSError as error:
        raise errors.SettingsError(f"cannot use {path}: {error.strerror}", key=key) from error


def check_own(folder: pathlib.Path) -> None:
    """Raise SettingsError if another user owns the folder, can write to it or can replace it. The folder may be missing.

    Such a user could replace the files that commands read in it: a socket, or a kubeconfig, whose exec plugin would run as the caller.
    """
    real = resolved(folder, _KEY)
    try:
        existing = [place for place in (real, *real.parents) if place.exists()]
        if real in existing and not real.is_dir():
            raise errors.SettingsError(f"{folder} is not a folder", key=_KEY)
        for place in existing:
            _check(place, is_named=place == real)
    except OSError as error:
        raise errors.SettingsError(f"cannot use {folder}: {error.strerror}", key=_KEY) from error


def _check(place: pathlib.Path, *, is_named: bool) -> None:
    status = place.stat()
    if status.st_uid != os.geteuid() and (is_named or status.st_uid != 0):
        owner = f"{place} belongs to user {status.st_uid}, who could replace the files in it"
        raise errors.SettingsError(f"{owner}; choose a folder of your own", key=_KEY)
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    if not _others_write(status) or (is_sticky and not is_named):
        return
    fix = f"choose a folder inside it, such as {place / 'drakit'}" if is_sticky else f"run: chmod go-w {place}"
    raise errors.SettingsError(f"other users can write to {place}; {fix}", key=_KEY)


def _others_write(status: os.stat_result) -> bool:
    """Return whether the mode lets other users write. The user's private group, whose ID is the user's ID, does not count."""
    is_own_group = status.st_gid == os.getegid() == os.geteuid()
    return bool(status.st_mode & (stat.S_IWOTH if is_own_group else stat.S_IWOTH | stat.S_IWGRP))
