"""The hook's client on the host: a static program, so that hosts need no Python, kept in the driver's folder under the digest of its content.

An installed driver brings the program along; a checkout compiles it from ``driver/attach/attach.c``. CDI files name the copy by its digest, and pods
may be started by a CDI file that an earlier version wrote, so a copy stays as long as a prepared claim names it, and for a day after it was put.
"""

import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Collection

from drakit.core import errors

FOLDER = "hook"
_PREFIX = "attach-"
BUNDLED = pathlib.Path(__file__).with_name("client")
BUILD = pathlib.Path(__file__).parents[4] / "attach" / "build"
_MODE = 0o700
_BUILD_SECONDS = 60
_TRIAL_SECONDS = 10
_KEPT_SECONDS = 86400.0


@functools.cache
def program() -> bytes:
    """The client, compiled once a process where it was not brought along; raises HardwareError that says what to install."""
    if BUNDLED.exists():
        return BUNDLED.read_bytes()
    if not BUILD.exists():
        raise errors.HardwareError("attach client", "it is not part of this installation; use the driver's image or a checkout")
    with tempfile.TemporaryDirectory(prefix="drakit-attach-") as folder:
        out = pathlib.Path(folder) / "attach"
        built = subprocess.run([BUILD, out], capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
        if built.returncode:
            raise errors.HardwareError("attach client", f"it cannot be compiled: {' '.join(built.stderr.split())[-512:]}")
        return out.read_bytes()


class Copies:
    """The copies in one driver's home."""

    def __init__(self, home: pathlib.Path) -> None:
        self._folder = home / FOLDER

    def path(self, name: str) -> pathlib.Path:
        """Where the copy of this name is on the host; the driver sees the same paths."""
        return self._folder / name

    def has(self, name: str) -> bool:
        """Whether a copy of this name can be run."""
        return name.startswith(_PREFIX) and "/" not in name and os.access(self.path(name), os.X_OK)

    def ensure(self) -> str:
        """The name of this version's copy, which is there when this returns; raises HardwareError."""
        content = program()
        name = f"{_PREFIX}{hashlib.sha256(content).hexdigest()[:16]}"
        path = self.path(name)
        try:
            if not path.exists() or path.read_bytes() != content:
                self._put(path, content)
        except OSError as error:
            raise errors.HardwareError("attach client", f"{path}: {error.strerror or error}") from error
        return name

    def try_out(self, name: str) -> None:
        """Run a copy; raises HardwareError where the host could not."""
        path = self.path(name)
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            raise errors.HardwareError(
                "attach client", f"{path} is on a file system mounted noexec; mount it exec, or move node.plugins_dir"
            )
        try:
            subprocess.run([path, "--check"], timeout=_TRIAL_SECONDS, check=True, capture_output=True, env={})
        except (OSError, subprocess.SubprocessError) as error:
            raise errors.HardwareError("attach client", f"{path} cannot be run: {error}") from error

    def sweep(self, used: Collection[str]) -> None:
        """Remove copies that no prepared claim names and that are older than a day."""
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path.name not in used and time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink(missing_ok=True)

    def _put(self, path: pathlib.Path, content: bytes) -> None:
        """Write the copy beside and rename it: a program that is being run cannot be written to."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(dir=self._folder, prefix=".attach-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            pathlib.Path(fresh).chmod(_MODE)
            pathlib.Path(fresh).rename(path)
        except OSError:
            pathlib.Path(fresh).unlink(missing_ok=True)
            raise
