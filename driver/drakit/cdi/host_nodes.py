"""Check that a container runtime can find a prepared device's nodes on this host."""

import pathlib
import stat

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
