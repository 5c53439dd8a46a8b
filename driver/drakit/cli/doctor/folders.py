"""Checks of the folders, file systems and sockets: the kubelet's two folders, the CDI directory, and the folder of each driver."""

import os
import pathlib
import stat
from collections.abc import Callable, Iterator

from drakit import mountinfo
from drakit import settings as values
from drakit.cli import composition
from drakit.core import errors
from drakit.core.advanced import Finding
from drakit.kubelet import sockets
from drakit.serving import unix_sockets

_Make = Callable[[str, str, str, str], Finding]
"""``Finding.failed`` or ``Finding.warning``."""

TOPIC = "folders"
CDI_PLACES = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "glusterfs"})


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check the folders and sockets on this node that the driver needs."""
    plugins, registry = settings.node.plugins_dir, settings.node.registry_dir
    no_kubelet = _needs_no_kubelet(settings)
    if no_kubelet:
        yield Finding.ok(TOPIC, str(registry.parent), "no kubelet has run here; mock hardware needs none, and drakit cluster starts one")
    if plugins.exists() or not no_kubelet:
        yield from _folder(
            plugins, "node.plugins_dir", "run this on a node; if its kubelet has another root directory, set node.plugins_dir"
        )
    if not no_kubelet:
        yield from _folder(
            registry, "node.registry_dir", "start the kubelet, which creates it; in a pod, mount it from the host at the same path"
        )
    yield from _cdi(settings.node.cdi_dir, is_mock=bool(settings.mock.machine) and not settings.node.pod_uid)
    if not plugins.exists() and not no_kubelet:
        yield Finding.unknown("sockets", str(plugins), "skipped, with the journal: no kubelet folder here")
        return
    try:
        families = composition.families(settings)
    except errors.SettingsError as error:
        yield Finding.warning("devices", "families", str(error), "enable a family, or load the hardware's kernel driver")
        return
    too_long = Finding.warning if no_kubelet else Finding.failed  # Only a driver that runs needs its sockets.
    for family in families:
        yield from _home(family, settings.node.pod_uid, too_long)
        yield from _registration(registry, family.spec.driver_name, settings.node.pod_uid, too_long)


def _needs_no_kubelet(settings: values.Settings) -> bool:
    """Return whether the commands work here without a kubelet: with mock hardware outside a pod, where only a kubelet makes the registry."""
    return bool(settings.mock.machine) and not settings.node.pod_uid and not settings.node.registry_dir.exists()


def _folder(path: pathlib.Path, key: str, missing_fix: str) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield Finding.failed(TOPIC, str(path), f"{key}: {error.strerror}", missing_fix)
        return
    if not stat.S_ISDIR(mode):
        yield Finding.failed(TOPIC, str(path), f"{key} is not a folder", f"set {key} to a folder")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield Finding.failed(TOPIC, str(path), f"{key} is not writable", "run as root; in a pod, mount it read-write")
    elif mode & stat.S_IWOTH:
        yield Finding.failed(TOPIC, str(path), f"{key} is writable for all users, who could replace the sockets in it", f"chmod o-w {path}")
    else:
        yield Finding.ok(TOPIC, str(path), f"{key}, mode {stat.S_IMODE(mode):04o}, {filesystem_of(path)}")


def _cdi(path: pathlib.Path, *, is_mock: bool) -> Iterator[Finding]:
    if not path.exists():
        yield Finding.ok(TOPIC, str(path), "node.cdi_dir does not exist yet; the driver creates it")
    else:
        yield from _folder(path, "node.cdi_dir", "in a pod, mount it from the host")
    if str(path) not in CDI_PLACES and not is_mock:  # No container runtime reads the files of mock hardware outside a pod.
        fix = f"add {path} to cdi_spec_dirs of containerd or CRI-O, or set node.cdi_dir to /var/run/cdi"
        yield Finding.warning(TOPIC, str(path), "by default, container runtimes read CDI files only in /etc/cdi and /var/run/cdi", fix)


def _home(family: composition.NodeFamily, instance: str, too_long: _Make) -> Iterator[Finding]:
    home = family.folders.home
    kind = filesystem_of(home)
    if kind in REMOTE:
        fix = "keep the kubelet's plugin folder on a local disk"
        yield Finding.failed(
            "journal", str(home), f"{kind} is not a local file system, which the journal needs for its write-ahead log and its lock", fix
        )
    else:
        yield Finding.ok("journal", str(home), f"on {kind}, a local file system")
    yield _socket(sockets.service_path(home, instance), family.spec.driver_name, too_long)


def _registration(folder: pathlib.Path, driver: str, instance: str, too_long: _Make) -> Iterator[Finding]:
    """Check that the kubelet can connect to the registration socket, also by its path without symbolic links."""
    path = sockets.registration_path(folder, driver, "0" * 8, instance)
    try:
        unix_sockets.check_path(path)
    except errors.SettingsError as error:
        yield too_long("sockets", str(folder), str(error), "use a shorter node.registry_dir")
        return
    if problem := unix_sockets.real_path_problem(path):
        yield Finding.warning(
            "sockets", str(folder), problem, "give the kubelet a root directory with a shorter path, without symbolic links"
        )


def _socket(path: pathlib.Path, driver: str, too_long: _Make) -> Finding:
    try:
        unix_sockets.check_path(path)
        state = unix_sockets.occupant(path)
    except errors.SettingsError as error:
        return too_long("sockets", str(path), str(error), "use a shorter node.plugins_dir")
    except OSError as error:
        return Finding.unknown("sockets", str(path), f"cannot be checked: {error.strerror}", "run as root")
    if state is unix_sockets.Occupant.LISTENER:
        return Finding.ok("sockets", str(path), f"{driver} is served")
    if state is unix_sockets.Occupant.OTHER:
        return Finding.failed("sockets", str(path), "the file at this path is not a socket", f"rm {path}")
    message = (
        "a stale socket that no process serves; the driver replaces it when it starts"
        if state is unix_sockets.Occupant.STALE
        else "no driver is running"
    )
    return Finding.ok("sockets", str(path), message)


def filesystem_of(path: pathlib.Path) -> str:
    """Return the type of the file system of a path, or of its nearest folder that exists; from /proc/self/mountinfo."""
    where = path.absolute()
    while not where.exists():
        where = where.parent
    mounts = {mount.point: mount.kind for mount in mountinfo.parse(mountinfo.read())}
    return next((mounts[str(folder)] for folder in (where.resolve(), *where.resolve().parents) if str(folder) in mounts), "unknown")
