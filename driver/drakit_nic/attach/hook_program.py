"""The client that the attach hook of a CDI file runs in a pod's start, and its copies in the driver's folder.

The client is a static program, so that hosts need no Python. The driver installs it in its folder under the digest of its content. An
installed driver contains the program; a checkout compiles it from ``driver/attach/attach.c``. CDI files name the copy by its digest, and a pod may
start with a CDI file that an earlier version wrote. So a copy stays as long as a prepared claim names it, and for a day after it was written.
"""

import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Collection

import drakit

FOLDER = "hook"
_PREFIX = "attach-"
BUNDLED = pathlib.Path(__file__).with_name("client")
BUILD = pathlib.Path(__file__).parents[2] / "attach" / "build"
_MODE = 0o700
_BUILD_SECONDS = 60
_CHECK_SECONDS = 10
_MIN_AGE_SECONDS = 86400.0


@functools.cache
def program() -> bytes:
    """Return the client program, compiled once per process in a checkout. Raises HardwareError."""
    if BUNDLED.exists():
        return BUNDLED.read_bytes()
    if not BUILD.exists():
        raise drakit.HardwareError("attach client", "the installation does not contain it; use the driver's image or a checkout")
    with tempfile.TemporaryDirectory(prefix="drakit-attach-") as folder:
        output = pathlib.Path(folder) / "attach"
        build = subprocess.run([BUILD, output], capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
        if build.returncode:
            raise drakit.HardwareError("attach client", f"compiling it failed: {' '.join(build.stderr.split())[-512:]}")
        return output.read_bytes()


class Copies:
    """The copies of the client in one driver's folder."""

    def __init__(self, home: pathlib.Path) -> None:
        self._folder = home / FOLDER

    def path(self, name: str) -> pathlib.Path:
        """Return the path of the copy of this name, the same on the host and in the driver."""
        return self._folder / name

    def has(self, name: str) -> bool:
        """Return whether a copy of this name can be run."""
        return name.startswith(_PREFIX) and "/" not in name and os.access(self.path(name), os.X_OK)

    def ensure(self) -> str:
        """Install this version's copy where it is missing or differs, and return its name. Raises HardwareError."""
        content = program()
        name = f"{_PREFIX}{hashlib.sha256(content).hexdigest()[:16]}"
        path = self.path(name)
        try:
            if not path.exists() or path.read_bytes() != content:
                self._put(path, content)
        except OSError as error:
            raise drakit.HardwareError("attach client", f"{path}: {error.strerror or error}") from error
        return name

    def try_out(self, name: str) -> None:
        """Run a copy once. Raises HardwareError where the host cannot run it."""
        path = self.path(name)
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            raise drakit.HardwareError(
                "attach client", f"{path} is on a file system mounted noexec; mount it without noexec, or move node.plugins_dir"
            )
        try:
            subprocess.run([path, "--check"], timeout=_CHECK_SECONDS, check=True, capture_output=True, env={})
        except (OSError, subprocess.SubprocessError) as error:
            raise drakit.HardwareError("attach client", f"running {path} failed: {error}") from error

    def sweep(self, used: Collection[str]) -> None:
        """Remove copies that are older than a day and named by no prepared claim."""
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path.name not in used and time.time() - path.stat().st_mtime > _MIN_AGE_SECONDS:
                path.unlink(missing_ok=True)

    def _put(self, path: pathlib.Path, content: bytes) -> None:
        """Write a copy through a temporary file and a rename, because a running program cannot be overwritten."""
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
