"""Where the GPU driver's own files are: on the machine itself, or below a folder, as when a container carries the driver.

One file has three paths: as this process sees it (below ``path``), as the host's container runtime sees it (below ``on_host``), and as the container
will see it (below ``/``).
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator

PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin", "opt/bin", "usr/local/nvidia/toolkit", "usr/local/nvidia/bin")
LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
)
_ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverRoot:
    """The folder below which the driver is installed; ``on_host`` is its path on the host, where that is another one."""

    path: pathlib.Path = _ROOT
    on_host: pathlib.Path | None = None

    def program(self, name: str) -> pathlib.Path | None:
        """A program of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in PROGRAM_FOLDERS)

    def library(self, name: str) -> pathlib.Path | None:
        """A library of the driver, as this process sees it."""
        return self.first(f"{folder}/{name}" for folder in LIBRARY_FOLDERS)

    def first(self, places: Iterable[str]) -> pathlib.Path | None:
        """The first of these files that is there."""
        return next((file for place in places if (file := self.path / place).is_file()), None)

    def library_folders(self) -> Iterator[pathlib.Path]:
        """The library folders there are, each once: ``lib64`` is often another name of ``usr/lib64``."""
        seen: set[pathlib.Path] = set()
        for place in LIBRARY_FOLDERS:
            folder = self.path / place
            if folder.is_dir() and (real := folder.resolve()) not in seen:
                seen.add(real)
                yield folder

    def host(self, file: pathlib.Path) -> str:
        """The path of a file of the driver on the host."""
        return str((self.on_host or self.path) / file.relative_to(self.path))

    def inside(self, file: pathlib.Path) -> str:
        """The path of a file of the driver in a container."""
        return str(_ROOT / file.relative_to(self.path))
