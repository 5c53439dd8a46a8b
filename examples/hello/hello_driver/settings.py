"""What an admin may set: in a file, by the environment or by ``--set``; the README says how. The framework has settings of its own beside these."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the driver hello.example.com."""

    folder: pathlib.Path = pathlib.Path("/var/lib/hello-driver")
    """Folder of the boards."""
