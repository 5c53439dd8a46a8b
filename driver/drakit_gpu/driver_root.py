"""The folder where NVIDIA's driver is installed, and where its programs and libraries are below it.

The driver root is the machine's root, or a folder where a container carries the driver. A file of the driver has three paths: as this process sees it
(below ``path``), as the host's container runtime sees it (below ``on_host``), and as the container sees it (below ``/``).
"""

import dataclasses
import errno
import pathlib
import platform
from collections.abc import Iterable, Iterator, Mapping

PROGRAM_FOLDERS = (
    *("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin", "opt/bin", "usr/local/nvidia/toolkit", "usr/local/nvidia/bin"),
    *("usr/lib/nvidia/current", "opt/nvidia/current/bin", "home/kubernetes/bin/nvidia/bin", "run/current-system/sw/bin"),
    *("usr/libexec/nvidia/tesla/bin", "libexec/nvidia/tesla/bin"),
)
_MULTIARCH = f"usr/lib/{platform.machine()}-linux-gnu"
# The folders that the dynamic linkers of common images search, most specific first. In a container a library keeps its place there.
_LINKER_FOLDERS = (
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"),
    "usr/local/nvidia/lib64",
)
# The folders of other systems: Debian, NixOS, Talos, Bottlerocket, Google's Container-Optimized OS, Flatcar, then Arch and roots that lead to the
# driver alone. No container's linker searches them, so in a container their libraries are in the folder of Debian's images.
_OTHER_FOLDERS = (
    *("usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current", "run/opengl-driver/lib"),
    *("usr/local/glibc/usr/lib", "usr/lib/nvidia/tesla", "lib/nvidia/tesla"),
    *(f"{machine}-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla" for machine in ("x86_64", "aarch64")),
    *("home/kubernetes/bin/nvidia/lib64", "opt/nvidia/current/usr/lib64", "opt/nvidia/current/lib64"),
    *("usr/lib", "lib"),
)
LIBRARY_FOLDERS = (*_LINKER_FOLDERS, *_OTHER_FOLDERS)
_ROOT = pathlib.Path("/")
_LINKS_MAX = 40
"""The number of links that Linux follows in one path."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverRoot:
    """The folder below which the driver is installed; ``on_host`` is its path on the host, where that differs.

    ``folders`` are folders below it with the driver's libraries, which are searched before the usual ones.

    Links are followed as they lead on the host: an absolute one, such as those of Debian's /etc/alternatives, begins at the driver root again, and
    none leads out of it.
    """

    path: pathlib.Path = _ROOT
    on_host: pathlib.Path | None = None
    folders: tuple[str, ...] = ()

    def program(self, name: str) -> pathlib.Path | None:
        """Return the real path of a program of the driver, as this process sees it; None if it is not installed."""
        return self._first(f"{folder}/{name}" for folder in PROGRAM_FOLDERS)

    def library(self, name: str) -> pathlib.Path | None:
        """Return the real path of a library of the driver, as this process sees it; None if it is not installed.

        Where the link ``libnvidia-ml.so.1`` is missing, the only file of that library is returned.
        """
        if (linked := self._first(f"{folder}/{name}" for folder in self._library_places())) is not None:
            return linked
        stem = name.partition(".so")[0]
        versions = {self.resolve(file) for folder in self.library_folders() for file in folder.glob(f"{stem}.so.*.*")} - {None}
        return versions.pop() if len(versions) == 1 else None

    def library_folders(self) -> Mapping[pathlib.Path, str]:
        """Return the real paths of the existing library folders, each once, with their paths in a container."""
        folders: dict[pathlib.Path, str] = {}
        for place in self._library_places():
            folder = self.resolve(self.path / place)
            if folder is not None and folder.is_dir():
                folders.setdefault(folder, f"/{place if place in _LINKER_FOLDERS else _MULTIARCH}")
        return folders

    def places(self) -> Iterator[pathlib.Path]:
        """Return the folders of libraries and programs, whether or not they exist."""
        return (self.path / place for place in (*self._library_places(), *PROGRAM_FOLDERS))

    def searched(self) -> str:
        """Return a text that names the folders that were searched for libraries: those that exist, and those of the settings."""
        usual = (place for place in LIBRARY_FOLDERS if (folder := self.resolve(self.path / place)) is not None and folder.is_dir())
        return f"searched below {self.path}: {', '.join([*self.folders, *usual]) or 'none of the usual folders exists'}"

    def resolve(self, file: pathlib.Path) -> pathlib.Path | None:
        """Return the path of a file below the root with every link followed below the root; None if there is no file, or its links loop."""
        waiting = list(reversed(file.relative_to(self.path).parts))
        current, links = self.path, 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                current = current if current == self.path else current.parent
                continue
            try:
                target = (current / part).readlink()
            except OSError as error:
                if error.errno != errno.EINVAL:
                    return None
                current /= part
                continue
            links += 1
            if links > _LINKS_MAX:
                return None
            if target.is_absolute():
                current = self.path
            waiting += reversed(target.relative_to("/").parts if target.is_absolute() else target.parts)
        return current

    def host(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver on the host."""
        return str((self.on_host or self.path) / file.relative_to(self.path))

    def inside(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver in a container, where that is its path on the host."""
        return str(_ROOT / file.relative_to(self.path))

    def _library_places(self) -> tuple[str, ...]:
        return (*(folder.strip("/") for folder in self.folders), *LIBRARY_FOLDERS)

    def _first(self, places: Iterable[str]) -> pathlib.Path | None:
        """Return the real path of the first of these files that exists."""
        return next((file for place in places if (file := self.resolve(self.path / place)) is not None and file.is_file()), None)
