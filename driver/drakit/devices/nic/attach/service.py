"""Attachment as the driver uses it: the hook in a claim's CDI file, the server, the background check, and the removal of a share's interfaces.

The hook's client is a static program, so that hosts need no Python. It is kept in the driver's folder under the digest of its content. An installed
driver contains the program; a checkout compiles it from ``driver/attach/attach.c``. CDI files name the copy by its digest, and pods may be
started by a CDI file that an earlier version wrote, so a copy stays as long as a prepared claim names it, and for a day after it was put.
"""

import dataclasses
import functools
import hashlib
import logging
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from drakit.core import advanced, edits, errors, records
from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.devices.nic import pod_interfaces, port
from drakit.devices.nic import share as shares
from drakit.devices.nic.addresses import address_leases
from drakit.devices.nic.attach import attacher, sandboxes, server
from drakit.devices.nic.discovery import offers
from drakit.devices.nic.passthrough import whole_interface

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
    """Return the client program, compiled once per process where the installation has none. Raises HardwareError that says what to install."""
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
        """Return where the copy of this name is on the host; the driver sees the same paths."""
        return self._folder / name

    def has(self, name: str) -> bool:
        """Return whether a copy of this name can be run."""
        return name.startswith(_PREFIX) and "/" not in name and os.access(self.path(name), os.X_OK)

    def ensure(self) -> str:
        """Return the name of this version's copy, which is there when this returns; raises HardwareError."""
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
                "attach client", f"{path} is on a file system mounted noexec; mount it without noexec, or move node.plugins_dir"
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
        """Write a temporary file and rename it, because a running program cannot be overwritten."""
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


SOCKET = "attach.sock"
TIMEOUT = server.SECONDS + 2
"""Seconds after which the runtime kills the client, which has reported its failure by then."""
RECORDED = "hook"

_log = logging.getLogger(__name__)

Grant = drivers.Grant[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Callbacks:
    """The callbacks for the outcome of an attach: with the grant, the pod and the reason of a failure; ``finished`` is called after either."""

    attached: Callable[[Grant, str], None] = lambda _grant, _pod: None
    failed: Callable[[Grant, str, str], None] = lambda _grant, _pod, _reason: None
    finished: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Started:
    """The parts of a started service, which need the driver's context."""

    context: contexts.DriverContext
    share_attacher: attacher.Attacher
    whole_attacher: whole_interface.WholeAttacher
    collector: attacher.AttachmentCollector


class Service:
    """Attachment on one node: ``home`` is the driver's folder, by the same path on the host and here; ``kernel`` the sandboxes of ``machine``."""

    def __init__(self, home: pathlib.Path, machine: port.Port, kernel: sandboxes.KernelSandboxes, *, node: str) -> None:
        self._home, self._machine, self._kernel, self._node = home, machine, kernel, node
        self._copies = Copies(home)
        self._calls = server.Calls()
        self.callbacks = Callbacks()
        self._started: _Started | None = None
        self._server: server.Server | None = None
        self._is_able = False

    def missing(self) -> str:
        """Return why this host's container runtime cannot run the client; empty when it can, and before ``start``, which installs it."""
        if self._started is not None and not self._is_able:
            try:
                self._copies.try_out(self._copies.ensure())
            except errors.HardwareError as error:
                return str(error)
            self._is_able = True
        return ""

    def client_for(self, record: records.Record) -> str:
        """Return the name of the client for a grant: the one it was prepared with while that exists, so that an upgrade changes no running claim."""
        recorded = record.get(RECORDED)
        return recorded if isinstance(recorded, str) and self._copies.has(recorded) else self._copies.ensure()

    def hook(self, name: str, grant: Grant) -> edits.Hook:
        """Return the hook of a grant: which program to call, and for what."""
        socket = str(self._home / SOCKET)
        of = (grant.claim.uid, grant.device.name, grant.share_id or server.NO_SHARE)
        return edits.Hook(
            name=edits.HookName.CREATE_RUNTIME,
            path=str(self._copies.path(name)),
            args=("attach", socket, str(server.SECONDS), *of),
            timeout=TIMEOUT,
        )

    def start(self, context: contexts.DriverContext, intents: Callable[[], Iterable[records.Record]]) -> None:
        """Start to answer calls. Raises HardwareError where the socket cannot be created."""
        self._copies.sweep({str(grant.record.get(RECORDED)) for grant in context.grants()})
        index = address_leases.AddressIndex(context.data_dir)
        share_attacher = attacher.Attacher(self._machine, self._kernel, context, node=self._node, index=index)
        self._started = started = _Started(
            context=context,
            share_attacher=share_attacher,
            whole_attacher=whole_interface.WholeAttacher(self._kernel, context, node=self._node, index=index),
            collector=attacher.AttachmentCollector(self._machine, self._kernel, context, share_attacher, intents=intents),
        )
        missing = self.missing()
        if missing:
            _log.error("NIC sharing unavailable", extra={"error": missing})
            context.rediscover()
        started.collector.remove_orphans()
        self._server = server.Server(self._home / SOCKET, functools.partial(self._attach, started))
        self._server.start()

    def _attach(self, started: _Started, request: server.Request, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Attach, and report the outcome in the claim, the log and the metrics."""
        began = time.monotonic()
        grant = started.context.grant(request.claim, request.device, request.share_id)
        pod = request.pod or request.sandbox
        try:
            if grant is not None and offers.is_whole(grant.device):
                started.whole_attacher.attach(request, grant, descriptor, is_waited_for)
            else:
                started.share_attacher.attach(request, descriptor, is_waited_for, just_read=grant)
        except Exception as error:
            reason, seconds = server.reason_of(error), time.monotonic() - began
            self._calls.refused(reason, seconds)
            asked = {"claim_uid": request.claim, "device": request.device, "share_id": request.share_id, "container": request.container}
            outcome = {"duration_ms": round(seconds * 1000, 1), "reason": reason.value, "error": str(error)}
            _log.warning("attach refused", extra=attacher.log_keys(grant, request, **asked, **outcome))
            if grant is not None and isinstance(error, server.RefusedError | errors.DrakitError):
                self.callbacks.failed(grant, pod, str(error))
            raise
        else:
            self._calls.attached(time.monotonic() - began)
            if grant is not None:
                self.callbacks.attached(grant, pod)
        finally:
            self.callbacks.finished()

    def readings(self) -> Iterator[advanced.Metric]:
        """Return the metrics of container runtimes' calls."""
        return self._calls.readings()

    def stop(self) -> None:
        """Stop answering; attached interfaces stay."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def collect(self) -> None:
        """Compare the recorded attachments with the kernel once. Raises DrakitError."""
        if self._started is not None:
            self._started.collector.collect()

    def leftovers(self) -> Iterator[str]:
        """Name the interfaces with this driver's mark in pods' network namespaces. Raises HardwareError."""
        return (f"interface {link.name} of a pod" for _, link in self._kernel.marked())

    def remove_leftovers(self) -> None:
        """Delete the interfaces with this driver's mark whose share is not installed and that no claim plans. Raises HardwareError."""
        if self._started is not None:
            self._started.collector.remove_orphans()

    def placement_of(self, grant: Grant) -> pod_interfaces.Placement | None:
        """Return where a whole interface was moved to; None before ``start``, as in a one-off command or during recovery."""
        return None if self._started is None else whole_interface.placement_of(self._started.context, grant)

    def detach(self, grant: Grant, share_id: str) -> None:
        """Delete the interfaces of a share that is being removed; those of ended sandboxes are gone already. Raises HardwareError.

        Called under the device's lock. Before ``start``, as in a one-off command, and after a lost journal, all namespaces are searched.
        """
        share = shares.from_record(grant.record) or shares.from_record(grant.intent)
        noted: tuple[sandboxes.Attachment, ...] = ()
        if self._started is not None:
            noted = self._started.share_attacher.attachments(grant)
            if share is not None:
                for attachment in noted:
                    for link in self._started.share_attacher.links(share, attachment):
                        self._kernel.delete(attachment.nsid, link)
            self._started.share_attacher.end(grant)
        noted_macs = {attachment.mac for attachment in noted}
        if self._started is None or share is None or any(member.mac not in noted_macs for member in self._machine.members(of=share)):
            self._delete_marked(share_id)

    def _delete_marked(self, share_id: str) -> None:
        for nsid, link in self._kernel.marked():
            if sandboxes.share_of(link.alias) == share_id:
                self._kernel.delete(nsid, link)
