"""Entry points of other installed distributions, which may be broken."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from drakit.core import errors

if TYPE_CHECKING:
    import importlib.metadata


def of(group: str) -> Sequence["importlib.metadata.EntryPoint"]:
    """Return the entry points of a group, sorted by name."""
    import importlib.metadata  # noqa: PLC0415 - it would double the time of ``import drakit``

    return sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name)


def load(point: "importlib.metadata.EntryPoint") -> Any:
    """Return the object that an entry point names. Raises SettingsError, which names the distribution, whatever its module raises."""
    try:
        return point.load()
    except Exception as error:
        raise unusable(point, f"cannot load {origin(point)}: {error!r}; repair or uninstall it") from error


def origin(point: "importlib.metadata.EntryPoint") -> str:
    """Return what an entry point names, and the distribution that has it."""
    return f"{point.value} of {point.dist.name if point.dist else 'an unknown distribution'}"


def unusable(point: "importlib.metadata.EntryPoint", reason: str) -> errors.SettingsError:
    """Return the error of an entry point that cannot be used."""
    return errors.SettingsError(reason, key=f"{point.group}.{point.name}")
