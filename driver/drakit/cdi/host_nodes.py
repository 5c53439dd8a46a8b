"""Check that a container runtime can find a prepared device's nodes and files on this host."""

import pathlib
import stat
from collections.abc import Callable, Sequence

from drakit.core import edits


def problem(content: edits.Edits) -> str:
    """Return which device node a runtime cannot find on this host, and why; an empty string where it finds all.

    A runtime reads type and numbers from the host's node unless the edits have them.
    """
    for node in content.device_nodes:
        path = node.host_path or node.path
        if node.type == "p" or (node.type and node.major is not None):
            continue
        try:
            mode = pathlib.Path(path).stat().st_mode
        except OSError as error:
            return f"device node {path}: {error.strerror}, so no container can start with it on this host"
        if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)):
            return f"device node {path}: is not a device, so no container can start with it on this host"
    return ""


def missing_files(content: edits.Edits, seen_as: Callable[[str], pathlib.Path | None]) -> Sequence[str]:
    """Return the files of the host that a runtime needs for a container and that do not exist: sources of bind mounts, and programs of hooks.

    ``seen_as`` returns where this process sees a path of the host, None if it cannot see it.
    """
    mounts = (mount.host_path for mount in content.mounts if mount.type in {"", "none", "bind"} or "bind" in mount.options)
    programs = (hook.path for hook in content.hooks if hook.name is not edits.HookName.START_CONTAINER)
    return [path for path in dict.fromkeys((*mounts, *programs)) if (seen := seen_as(path)) is not None and not seen.exists()]
