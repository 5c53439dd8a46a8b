"""Name a driver's sockets, and remove those of dead processes.

A process that knows its pod's UID (``instance``) has sockets of its own, so that two can serve at once in a rolling update. A path may have 107
bytes; names that are too long are replaced by hashes. Only sockets of the same driver are removed, and only those that accept no connection.
"""

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Iterator

from drakit.core import errors, names
from drakit.serving import unix_sockets
from drakit.telemetry import logs

SERVICE = "dra"
_INSTANCE = r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8})"

_log = logs.get_logger(__name__)


def registration_path(folder: pathlib.Path, driver: str, token: str, instance: str = "") -> pathlib.Path:
    """Return ``<driver>[-<instance>]-<token>-reg.sock``; if it is too long, hash the instance first, then the driver too."""
    ends = [f"{instance}-{token}", f"{_hash(instance)}-{token}"] if instance else [token]
    return _first_fitting(folder, [f"{name}-reg.sock" for name in (*(f"{driver}-{end}" for end in ends), f"{_short(driver)}-{ends[-1]}")])


def service_path(folder: pathlib.Path, instance: str = "") -> pathlib.Path:
    """Return ``dra.sock``, or ``dra-<instance>.sock``, with a hash of the instance if it is too long."""
    return _first_fitting(folder, [f"{SERVICE}-{instance}.sock", f"{SERVICE}-{_hash(instance)}.sock"] if instance else [f"{SERVICE}.sock"])


def check_instance(instance: str) -> str:
    """Return an instance that is empty or a lower-case UUID, as pods have. Raises SettingsError."""
    if instance and not names.is_uid(instance):
        raise errors.SettingsError(f"{instance!r} is not the UID of a pod; pass metadata.uid by the downward API", key="node.pod_uid")
    return instance


def clear_registry(folder: pathlib.Path, driver: str) -> None:
    """Remove the registration sockets of dead instances of this driver. Raises SettingsError."""
    with contextlib.suppress(OSError):  # If the folder cannot be read, ``registered`` raises SettingsError.
        unix_sockets.clear_unfinished(folder, label(driver))
    for path in registered(folder, driver):
        if unix_sockets.occupant(path) is unix_sockets.Occupant.STALE:
            path.unlink(missing_ok=True)
            _log.info("stale registration socket removed", path=str(path))


def services(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the service sockets in a driver's own folder, the youngest first; none if the folder is missing or unreadable."""
    own = re.compile(rf"{SERVICE}(?:-{_INSTANCE})?\.sock")
    try:
        return sorted((path for path in folder.iterdir() if own.fullmatch(path.name)), key=_age, reverse=True)
    except OSError:
        return []


def clear_services(folder: pathlib.Path) -> None:
    """Remove the service sockets, hidden sockets and lock files of dead instances from a driver's own folder."""
    own = re.compile(rf"\.?({SERVICE}(?:-{_INSTANCE})?\.sock)(?:\.lock)?")
    if folder.is_dir():
        unix_sockets.clear_unfinished(folder)
        for name in sorted({match[1] for path in folder.iterdir() if (match := own.fullmatch(path.name))}):
            unix_sockets.clear_stale(folder / name)


def has_living(folder: pathlib.Path, driver: str, *, besides: pathlib.Path) -> bool:
    """Return whether another process of this driver listens on a registration socket."""
    return any(_living(folder, driver, besides))


def has_younger(folder: pathlib.Path, driver: str, *, than: pathlib.Path) -> bool:
    """Return whether another process of this driver listens on a registration socket that is younger than ``than``."""
    try:
        own = _age(than)
        return any(_age(path) > own for path in _living(folder, driver, than))
    except FileNotFoundError:
        return False  # The process of one of the sockets ended meanwhile; the next check is reliable.


def _age(path: pathlib.Path) -> tuple[int, str]:
    return path.stat().st_mtime_ns, path.name


def _living(folder: pathlib.Path, driver: str, besides: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the registration sockets of other living processes of this driver; none if the folder cannot be read."""
    try:
        others = [path for path in registered(folder, driver) if path != besides]
    except errors.SettingsError:
        return
    yield from (path for path in others if unix_sockets.occupant(path) is unix_sockets.Occupant.LISTENER)


def registered(folder: pathlib.Path, driver: str) -> Iterator[pathlib.Path]:
    """Yield all registration sockets of a driver, stale ones too. Raises SettingsError if the folder cannot be read."""
    own = re.compile(rf"(?:{re.escape(driver)}|{_short(driver)})(?:-{_INSTANCE})?-[0-9a-f]{{8}}-reg\.sock")
    try:
        yield from [path for path in folder.iterdir() if own.fullmatch(path.name)]
    except OSError as error:
        raise errors.SettingsError(
            f"cannot read {folder}: {error.strerror}; check that the kubelet runs on this node", key="plugins_registry"
        ) from error


def label(driver: str) -> str:
    """Return the prefix of a driver's hidden sockets in the folder that all drivers share."""
    return f"{_short(driver)}-"


def _first_fitting(folder: pathlib.Path, candidates: list[str]) -> pathlib.Path:
    """Return the first path that is short enough, or the last one, which the server then rejects with an error.

    A kubelet whose root directory is a link's target uses the path without symbolic links, so that should be short enough too.
    """
    paths = [folder / name for name in candidates]
    bindable = [path for path in paths if len(os.fsencode(path)) <= unix_sockets.PATH_MAX_BYTES]
    return next((path for path in bindable if unix_sockets.fits(path)), bindable[-1] if bindable else paths[-1])


def _short(driver: str) -> str:
    return f"dra-{_hash(driver)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
