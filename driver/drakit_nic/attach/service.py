"""The attachment service of the NIC driver: the hook in CDI files, the server, the background check, and the removal of a share's interfaces."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import drakit
from drakit_nic import config, interface_identity, port
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases, dhcp_renewal
from drakit_nic.attach import announcer, attacher, attachment_records, call_metrics, collector, hook_program, sandboxes, server
from drakit_nic.discovery import device_names
from drakit_nic.passthrough import whole_interface

SOCKET = "attach.sock"
TIMEOUT = server.SECONDS + 2
"""Seconds after which the runtime kills the client. The client reports a failure before that."""
RECORDED = "hook"

_log = drakit.get_logger(__name__)

Grant = drakit.Grant[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Callbacks:
    """The callbacks for the outcome of an attachment, with the grant, the pod and the reason of a failure. ``finished`` follows either."""

    attached: Callable[[Grant, str], None] = lambda _grant, _pod: None
    failed: Callable[[Grant, str, str], None] = lambda _grant, _pod, _reason: None
    finished: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Started:
    """The parts of a started service that need the driver's context."""

    context: drakit.DriverContext
    share_attacher: attacher.Attacher
    whole_attacher: whole_interface.WholeAttacher
    collector: collector.AttachmentCollector
    announcing: announcer.Announcer
    renewer: dhcp_renewal.Renewer


class Service:
    """The attachment service of one node.

    ``home`` is the driver's folder, by the same path on the host and here. ``kernel`` has the sandboxes of ``machine``.
    """

    def __init__(self, home: pathlib.Path, machine: port.Port, kernel: sandboxes.KernelSandboxes, *, node: str) -> None:
        self.home, self._machine, self.kernel, self._node = home, machine, kernel, node
        self._copies = hook_program.Copies(home)
        self._calls = call_metrics.Calls()
        self.callbacks = Callbacks()
        self._started: _Started | None = None
        self._server: server.Server | None = None
        self._can_run_client = False

    def missing(self) -> str:
        """Return why the container runtime cannot run the client, empty where it can, and before ``start``, which installs the client."""
        if self._started is not None and not self._can_run_client:
            try:
                self._copies.try_out(self._copies.ensure())
            except drakit.HardwareError as error:
                return str(error)
            self._can_run_client = True
        return ""

    def client_for(self, record: drakit.Record) -> str:
        """Return the client's name for a grant: the one it was prepared with while that exists, so that an upgrade changes no prepared claim."""
        recorded = record.get(RECORDED)
        return recorded if isinstance(recorded, str) and self._copies.has(recorded) else self._copies.ensure()

    def hook(self, name: str, grant: Grant) -> drakit.Hook:
        """Return the hook of a grant, which calls the client with the socket, the claim, the device and the share."""
        socket = str(self.home / SOCKET)
        grant_args = (grant.claim.uid, grant.device.name, grant.share_id or server.NO_SHARE)
        return drakit.Hook(
            name=drakit.HookName.CREATE_RUNTIME,
            path=str(self._copies.path(name)),
            args=("attach", socket, str(server.SECONDS), *grant_args),
            timeout=TIMEOUT,
        )

    def start(self, context: drakit.DriverContext, intents: Callable[[], Iterable[drakit.Record]]) -> None:
        """Start to answer calls. Raises HardwareError where the socket cannot be created."""
        self._copies.sweep({str(grant.record.get(RECORDED)) for grant in context.grants()})
        index = address_leases.AddressIndex(context.data_dir)
        announcing = announcer.Announcer(self.kernel)
        share_attacher = attacher.Attacher(self._machine, self.kernel, context, node=self._node, index=index, announcing=announcing)
        self._started = started = _Started(
            context=context,
            share_attacher=share_attacher,
            whole_attacher=whole_interface.WholeAttacher(
                self._machine, self.kernel, context, node=self._node, index=index, announcing=announcing
            ),
            announcing=announcing,
            renewer=share_attacher.renewer(),
            collector=collector.AttachmentCollector(self._machine, self.kernel, context, share_attacher, intents=intents),
        )
        missing = self.missing()
        if missing:
            _log.error("NIC sharing unavailable", error=missing)
            context.rediscover()
        started.collector.remove_orphans()
        if any(config.of(grant).dhcp for grant in context.grants()):
            started.renewer.start()
        overloaded = functools.partial(self._calls.refused, server.Reason.OVERLOAD, 0.0)
        self._server = server.Server(self.home / SOCKET, functools.partial(self._attach, started), overloaded=overloaded)
        self._server.start()

    def _attach(self, started: _Started, request: server.Request, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Attach the interface of a call, and report the outcome in the claim, the log and the metrics."""
        began, grant = time.monotonic(), None
        pod = request.pod or request.sandbox
        try:
            grant = started.context.grant(request.claim, request.device, request.share_id)
            if grant is not None and device_names.is_whole(grant.device):
                started.whole_attacher.attach(request, grant, descriptor, is_waited_for)
            else:
                started.share_attacher.attach(request, descriptor, is_waited_for, just_read=grant)
        except Exception as error:
            reason, seconds = server.reason_of(error), time.monotonic() - began
            self._calls.refused(reason, seconds)
            request_keys = {
                "claim_uid": request.claim,
                "device": request.device,
                "share_id": request.share_id,
                "container": request.container,
            }
            outcome_keys = {"duration_ms": round(seconds * 1000, 1), "reason": reason.value, "error": str(error)}
            _log.warning("attach refused", **attacher.log_keys(grant, request, **request_keys, **outcome_keys))
            if grant is not None and isinstance(error, server.RefusedError | drakit.DrakitError):
                self.callbacks.failed(grant, pod, str(error))
            raise
        else:
            self._calls.attached(time.monotonic() - began)
            if grant is not None:
                if config.of(grant).dhcp:
                    started.renewer.start()
                self.callbacks.attached(grant, pod)
        finally:
            self.callbacks.finished()

    def readings(self) -> Iterator[drakit.Metric]:
        """Return the metrics of the container runtime's calls."""
        return self._calls.readings()

    def stop(self) -> None:
        """Stop answering calls. Attached interfaces stay."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._started is not None:
            self._started.announcing.close()
            self._started.renewer.stop()

    def collect(self) -> None:
        """Compare the recorded attachments with the kernel once. Raises DrakitError."""
        if self._started is not None:
            self._started.collector.collect()

    def namespaces(self) -> Collection[int]:
        """Return the numbers of the namespaces with recorded attachments, none before ``start``."""
        if self._started is None:
            return ()
        started = self._started
        return {attachment.nsid for grant in started.context.grants() for attachment in started.share_attacher.attachments(grant)}

    def leftovers(self) -> Iterator[str]:
        """Return a description of each interface with this driver's mark in a pod's network namespace. Raises HardwareError."""
        return (f"interface {link.name} of a pod" for _, link in self.kernel.marked())

    def remove_leftovers(self) -> None:
        """Delete the interfaces with this driver's mark whose share is not installed and that no claim plans. Raises HardwareError."""
        if self._started is not None:
            self._started.collector.remove_orphans()

    def placement_of(self, grant: Grant) -> interface_identity.Placement | None:
        """Return where a whole interface was moved to, None before ``start``, as in a one-off command or during recovery."""
        return None if self._started is None else whole_interface.placement_of(self._started.context, grant)

    def end_whole(self, grant: Grant) -> None:
        """Release a whole interface's sandbox, because the grant is about to be unprepared."""
        if self._started is not None:
            self._started.whole_attacher.end(grant)

    def detach(self, grant: Grant, share_id: str) -> None:
        """Delete the interfaces of a share that is being removed. Raises HardwareError.

        The caller holds the device's lock. All namespaces are searched where the journal may not have every attachment: before ``start``, as in a
        one-off command, and after a lost journal.
        """
        share = shares.from_record(grant.record) or shares.from_record(grant.intent)
        recorded: tuple[attachment_records.Attachment, ...] = ()
        if self._started is not None:
            recorded = self._started.share_attacher.attachments(grant)
            if share is not None:
                for attachment in recorded:
                    for link in self._started.share_attacher.links(share, attachment):
                        self.kernel.delete(attachment.nsid, link)
            self._started.share_attacher.end(grant)
        recorded_macs = {attachment.mac for attachment in recorded}
        if self._started is None or share is None or any(member.mac not in recorded_macs for member in self._machine.members(of=share)):
            self._delete_marked(share_id)

    def _delete_marked(self, share_id: str) -> None:
        for nsid, link in self.kernel.marked():
            if attachment_records.share_of(link.alias) == share_id:
                self.kernel.delete(nsid, link)
