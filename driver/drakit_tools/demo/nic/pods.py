"""Minimal pods: a network namespace with one process, and a container runtime that calls the hooks of CDI files.

The process reads a pipe, so it ends when the demo's process ends for any reason. Its namespace and the interfaces in it end with it. IPv6 is off in
the namespace, because the kernel would send frames for every interface that comes up.
"""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import subprocess
import uuid
from collections.abc import Mapping, Sequence

from drakit_nic.netlink import rtnetlink

_CLONE_NEWNET = 0x40000000
_IPV6 = tuple(pathlib.Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6") for which in ("all", "default"))
_CRI = "io.kubernetes.cri."
_GRACE_SECONDS = 5.0


class Pod:
    """A sandbox with one process, which ``close`` removes. Raises OSError."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sandbox = uuid.uuid4().hex
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
            self._living = thread.submit(_begin).result()

    @property
    def pid(self) -> int:
        """Return the process ID."""
        return self._living.pid

    @property
    def namespace(self) -> str:
        """Return the path of its network namespace."""
        return f"/proc/{self.pid}/ns/net"

    def cookie(self) -> int:
        """Return the cookie of its network namespace."""
        with rtnetlink.Socket.open(self.namespace) as sock:
            return sock.cookie

    def close(self) -> None:
        """Stop it; the kernel then removes its interfaces. Safe to call twice."""
        if self._living.stdin is not None:
            self._living.stdin.close()
        try:
            self._living.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._living.kill()
            self._living.wait()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hook:
    """One ``createRuntime`` hook of a CDI file: the program, its arguments from its name on, and its limit in seconds."""

    path: str
    args: tuple[str, ...]
    timeout: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookResult:
    """The exit status of a hook, and its message."""

    status: int
    words: str


def hooks(files: Sequence[pathlib.Path]) -> tuple[Hook, ...]:
    """Return the hooks that a runtime calls before it starts a container with the devices of these CDI files."""
    hook_list = []
    for file in files:
        for device in json.loads(file.read_text("utf-8"))["devices"]:
            listed = device["containerEdits"].get("hooks", ())
            hook_list += [hook for hook in listed if hook["hookName"] == "createRuntime"]
    return tuple(Hook(path=hook["path"], args=tuple(hook["args"]), timeout=hook["timeout"]) for hook in hook_list)


def call(hook: Hook, state: Mapping[str, object]) -> HookResult:
    """Call a hook as a runtime does (OCI runtime specification, config.md, POSIX-platform hooks): the state on its standard input."""
    text = json.dumps(state).encode()
    ran = subprocess.run(hook.args, executable=hook.path, input=text, capture_output=True, timeout=hook.timeout, env={}, check=False)
    return HookResult(status=ran.returncode, words=ran.stderr.decode(errors="replace").strip())


def state(name: str, sandbox: str, pid: int) -> Mapping[str, object]:
    """Return the state of a container that is being created, as containerd passes it."""
    annotations = {
        f"{_CRI}container-name": name,
        f"{_CRI}container-type": "container",
        f"{_CRI}sandbox-id": sandbox,
        f"{_CRI}sandbox-uid": str(uuid.UUID(sandbox)),
    }
    return {
        "ociVersion": "1.3.0",
        "id": f"{sandbox}-{name}",
        "status": "creating",
        "pid": pid,
        "bundle": "/",
        "annotations": annotations,
    }


def _begin() -> "subprocess.Popen[bytes]":
    """Start a process in a new network namespace. Call it in a thread that ends afterwards, because the thread stays in the namespace."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, f"unshare: {os.strerror(code)}")
    for file in _IPV6:
        with contextlib.suppress(OSError):  # Missing if the kernel has no IPv6.
            file.write_text("1\n", "ascii")
    return subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/", env={"PATH": os.defpath}
    )
