"""The folder of one node: where its plugins put sockets and CDI files, and where its kubelet and runtime keep theirs."""

import os
import pathlib
from dataclasses import dataclass

_SOCKET_BYTES = 107
"""The longest path that a unix socket can have: sun_path without its final zero."""
_ROOM = len("/plugins_registry/0123456789abcdef.drakit.dev-12345678-reg.sock")
"""What a driver of a usual name, below 28 bytes, adds to the node's folder for its longest socket path."""


class FolderError(ValueError):
    """A folder that cannot serve as a node's."""


@dataclass(frozen=True, kw_only=True)
class NodeFolder:
    """The paths of one node. FolderError if sockets in it would get too long a path."""

    root: pathlib.Path

    def __post_init__(self) -> None:
        length = len(os.fsencode(self.root))
        if length + _ROOM > _SOCKET_BYTES:
            raise FolderError(
                f"folder {self.root}: its path has {length} bytes; sockets in it need one of at most {_SOCKET_BYTES - _ROOM}: "
                "choose a shorter folder, or a shorter name for the node"
            )

    @property
    def plugins(self) -> pathlib.Path:
        """Each driver's own folder is made in here."""
        return self.root / "plugins"

    @property
    def registry(self) -> pathlib.Path:
        """Registration sockets."""
        return self.root / "plugins_registry"

    @property
    def cdi(self) -> pathlib.Path:
        """CDI files."""
        return self.root / "cdi"

    @property
    def logs(self) -> pathlib.Path:
        """Output of containers that run a command."""
        return self.root / "logs"

    @property
    def pod_resources(self) -> pathlib.Path:
        """The socket on which the kubelet says which devices its containers have."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def checkpoint(self) -> pathlib.Path:
        """What the kubelet remembers of claims."""
        return self.root / "dra_manager_state"

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The driver's access to the API server."""
        return self.root / "driver.kubeconfig"

    def make(self) -> None:
        """Make the folders, for their owner only; those that exist stay as they are."""
        for path in (self.root, self.plugins, self.registry, self.cdi):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
