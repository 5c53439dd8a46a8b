"""Names of a driver's sockets, and the removal of those that dead processes left.

A process that knows its pod's UID (``instance``) has sockets of its own, so that two can serve at once in a rolling update. A path may have 107
bytes; where the names are too long for that, hashes stand for them. Only sockets of the same driver are ever removed, and only those to which
nobody can connect.
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
    """``<driver>[-<instance>]-<token>-reg.sock``; where that is too long, first the instance gives way to its hash, then the driver too."""
    ends = [f"{instance}-{token}", f"{_hash(instance)}-{token}"] if instance else [token]
    return _first_fitting(folder, [f"{name}-reg.sock" for name in (*(f"{driver}-{end}" for end in ends), f"{_short(driver)}-{ends[-1]}")])


def service_path(folder: pathlib.Path, instance: str = "") -> pathlib.Path:
    """``dra.sock``, or ``dra-<instance>.sock`` with the instance's hash where that is too long."""
    return _first_fitting(folder, [f"{SERVICE}-{instance}.sock", f"{SERVICE}-{_hash(instance)}.sock"] if instance else [f"{SERVICE}.sock"])


def check_instance(instance: str) -> str:
    """Empty or a lower-case UUID, as pods have; raises SettingsError."""
    if instance and not names.is_uid(instance):
        raise errors.SettingsError(f"{instance!r} is not the UID of a pod; pass metadata.uid by the downward API", key="node.pod_uid")
    return instance


def clear_registry(folder: pathlib.Path, driver: str) -> None:
    """Remove registration sockets of this driver on which nobody listens; those of a living instance stay. Raises SettingsError."""
    with contextlib.suppress(OSError):  # Where the folder cannot be read, the next line says so.
        unix_sockets.clear_unfinished(folder, label(driver))
    for path in registered(folder, driver):
        if unix_sockets.occupant(path) is unix_sockets.Occupant.STALE:
            path.unlink(missing_ok=True)
            _log.info("stale registration socket removed", path=str(path))


def services(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the service sockets in a driver's own folder, the youngest first; none where the folder is missing or cannot be read."""
    own = re.compile(rf"{SERVICE}(?:-{_INSTANCE})?\.sock")
    try:
        return sorted((path for path in folder.iterdir() if own.fullmatch(path.name)), key=_age, reverse=True)
    except OSError:
        return []


def clear_services(folder: pathlib.Path) -> None:
    """Remove the service sockets, finished or not, and lock files of dead instances from a driver's own folder."""
    own = re.compile(rf"\.?({SERVICE}(?:-{_INSTANCE})?\.sock)(?:\.lock)?")
    if folder.is_dir():
        unix_sockets.clear_unfinished(folder)
        for name in sorted({match[1] for path in folder.iterdir() if (match := own.fullmatch(path.name))}):
            unix_sockets.clear_stale(folder / name)


def has_living(folder: pathlib.Path, driver: str, *, besides: pathlib.Path) -> bool:
    """Whether another process of this driver offers itself to the kubelet."""
    return any(_living(folder, driver, besides))


def has_younger(folder: pathlib.Path, driver: str, *, than: pathlib.Path) -> bool:
    """Whether another process of this driver has offered itself to the kubelet since the one whose registration socket is ``than``."""
    try:
        own = _age(than)
        return any(_age(path) > own for path in _living(folder, driver, than))
    except FileNotFoundError:
        return False  # One of the sockets went meanwhile, with its process; the next look is sure.


def _age(path: pathlib.Path) -> tuple[int, str]:
    return path.stat().st_mtime_ns, path.name


def _living(folder: pathlib.Path, driver: str, besides: pathlib.Path) -> Iterator[pathlib.Path]:
    """The registration sockets of other processes of this driver that still listen; none where the folder cannot be read."""
    try:
        others = [path for path in registered(folder, driver) if path != besides]
    except errors.SettingsError:
        return
    yield from (path for path in others if unix_sockets.occupant(path) is unix_sockets.Occupant.LISTENER)


def registered(folder: pathlib.Path, driver: str) -> Iterator[pathlib.Path]:
    """The registration sockets of a driver, whoever serves them; raises SettingsError where the folder cannot be read."""
    own = re.compile(rf"(?:{re.escape(driver)}|{_short(driver)})(?:-{_INSTANCE})?-[0-9a-f]{{8}}-reg\.sock")
    try:
        yield from [path for path in folder.iterdir() if own.fullmatch(path.name)]
    except OSError as error:
        raise errors.SettingsError(f"cannot read {folder}: {error.strerror}; is the kubelet there?", key="plugins_registry") from error


def label(driver: str) -> str:
    """How the names of a driver's hidden sockets start in the folder that all drivers share; in its own folder all are its own."""
    return f"{_short(driver)}-"


def _first_fitting(folder: pathlib.Path, candidates: list[str]) -> pathlib.Path:
    """The first path that the kernel can bind; the last of all where none is, which the server then refuses by name."""
    paths = [folder / name for name in candidates]
    return next((path for path in paths if len(os.fsencode(path)) <= unix_sockets.PATH_MAX_BYTES), paths[-1])


def _short(driver: str) -> str:
    return f"dra-{_hash(driver)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
