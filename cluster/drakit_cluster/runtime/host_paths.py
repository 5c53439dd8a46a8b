"""Check the paths of the host that container edits name, as the CDI library and runc do: a missing one keeps the container from starting.

A device node needs no node on the host if the edits have its type and numbers. A mount that is no bind mount, such as a tmpfs, has no path on the
host. A ``startContainer`` hook runs in the container, so its path is not the host's, and a ``poststop`` hook runs too late to keep anything from
starting.
"""

import pathlib
import stat

from drakit_cluster.runtime.edits import DeviceNode, Edits, Mount

_NOT_NEEDED = frozenset({"startContainer", "poststop"})


def device_problem(edits: Edits) -> str:
    """Return why the CDI library cannot inject the device nodes; an empty string where it can."""
    for node in edits.device_nodes:
        if not _is_complete(node) and (problem := _node_problem(node.host_path or node.path)):
            return problem
    return ""


def start_problem(edits: Edits) -> str:
    """Return why runc cannot start the container; an empty string where it can."""
    for mount in edits.mounts:
        if _is_bind(mount) and not pathlib.Path(mount.host_path).exists():
            return f'error mounting "{mount.host_path}" to rootfs at "{mount.container_path}": {mount.host_path}: no such file or directory'
    for hook in edits.hooks:
        if hook.name not in _NOT_NEEDED and not pathlib.Path(hook.path).exists():
            return f"error running {hook.name} hook: fork/exec {hook.path}: no such file or directory"
    return ""


def _is_complete(node: DeviceNode) -> bool:
    return node.type == "p" or bool(node.type and node.major)


def _node_problem(path: str) -> str:
    try:
        mode = pathlib.Path(path).stat().st_mode
    except OSError as error:
        return f'failed to stat CDI host device "{path}": {(error.strerror or str(error)).lower()}'
    is_device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)
    return "" if is_device else f'CDI host device "{path}" is not a device node'


def _is_bind(mount: Mount) -> bool:
    return mount.type in {"", "none", "bind"} or not {"bind", "rbind"}.isdisjoint(mount.options)
