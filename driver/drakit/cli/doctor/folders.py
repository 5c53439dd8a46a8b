"""Folders, file systems and sockets: the kubelet's two, the CDI directory, and each driver's own."""

import os
import pathlib
import stat
from collections.abc import Iterator

from drakit import settings as values
from drakit.cli import composition
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import errors
from drakit.devices import mountinfo
from drakit.kubelet import sockets
from drakit.serving import unix_sockets

TOPIC = "folders"
CDI_PLACES = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "glusterfs"})


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Everything on this node's disk that the driver needs."""
    plugins, registry = settings.node.plugins_dir, settings.node.registry_dir
    if settings.mock.machine and not plugins.exists() and not registry.exists():
        yield finding.ok(
            TOPIC, str(plugins.parent), "no kubelet has run here; drakit cluster makes one, and a mock machine can be used without"
        )
    else:
        yield from _folder(plugins, "node.plugins_dir", "the kubelet makes it; is this a node, and is its root directory another?")
        yield from _folder(registry, "node.registry_dir", "the kubelet makes it; in a pod, mount it from the host under the same path")
    yield from _cdi(settings.node.cdi_dir)
    try:
        families = composition.families(settings)
    except errors.SettingsError as error:
        yield finding.warning("devices", "families", str(error), "enable a family, or load the hardware's kernel driver")
        return
    for family in families:
        yield from _home(family, settings.node.pod_uid)


def _folder(path: pathlib.Path, key: str, whose: str) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield finding.failed(TOPIC, str(path), f"{key}: {error.strerror}", whose)
        return
    if not stat.S_ISDIR(mode):
        yield finding.failed(TOPIC, str(path), f"{key} is not a folder", f"set {key}")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield finding.failed(TOPIC, str(path), f"{key} cannot be written", "run as root, and mount it read-write")
    elif mode & stat.S_IWOTH:
        yield finding.failed(TOPIC, str(path), f"{key} can be written by anybody, who could replace the sockets in it", f"chmod o-w {path}")
    else:
        yield finding.ok(TOPIC, str(path), f"{key}, mode {stat.S_IMODE(mode):04o}, {filesystem_of(path)}")


def _cdi(path: pathlib.Path) -> Iterator[Finding]:
    if not path.exists():
        yield finding.ok(TOPIC, str(path), "node.cdi_dir is not there yet; the driver makes it")
    else:
        yield from _folder(path, "node.cdi_dir", "in a pod, mount it from the host")
    if str(path) not in CDI_PLACES:
        fix = f"add {path} to the runtime's cdi_spec_dirs (containerd, CRI-O), or use /var/run/cdi"
        yield finding.warning(
            TOPIC, str(path), "runtimes look for CDI files in /etc/cdi and /var/run/cdi only, unless configured otherwise", fix
        )


def _home(family: composition.Family, instance: str) -> Iterator[Finding]:
    home = family.folders.home
    kind = filesystem_of(home)
    if kind in REMOTE:
        fix = "keep the kubelet's plugin folder on a local disk"
        yield finding.failed("journal", str(home), f"{kind} is no local file system: a write-ahead log and flock need one", fix)
    else:
        yield finding.ok("journal", str(home), f"on {kind}, a local file system")
    yield _socket(sockets.service_path(home, instance), family.spec.driver_name)


def _socket(path: pathlib.Path, driver: str) -> Finding:
    try:
        unix_sockets.check_path(path)
        state = unix_sockets.occupant(path)
    except errors.SettingsError as error:
        return finding.failed("sockets", str(path), str(error), "use a shorter node.plugins_dir")
    except OSError as error:
        return finding.unknown("sockets", str(path), f"cannot look: {error.strerror}", "run as root")
    if state is unix_sockets.Occupant.LISTENER:
        return finding.ok("sockets", str(path), f"{driver} is served")
    if state is unix_sockets.Occupant.OTHER:
        return finding.failed("sockets", str(path), "the file at the path is not a socket", f"rm {path}")
    said = (
        "a socket that nobody serves; it is replaced at the next start"
        if state is unix_sockets.Occupant.STALE
        else "no driver runs here now"
    )
    return finding.ok("sockets", str(path), said)


def filesystem_of(path: pathlib.Path) -> str:
    """The type of the file system that holds a path, or will hold it once it is made; from /proc/self/mountinfo."""
    where = path.absolute()
    while not where.exists():
        where = where.parent
    mounts = {mount.point: mount.kind for mount in mountinfo.parse(mountinfo.read())}
    return next((mounts[str(folder)] for folder in (where.resolve(), *where.resolve().parents) if str(folder) in mounts), "unknown")
