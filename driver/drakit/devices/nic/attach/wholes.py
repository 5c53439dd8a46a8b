"""What is done when a runtime asks for a whole interface in a sandbox: it is moved there, under the NIC's device lock.

The interface can be in one pod at a time. While it is in one, another sandbox of the claim is refused; once that pod is gone and the kernel has given
the interface back to the host, the next one gets it. Where the caller has given up meanwhile, the interface is taken back.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from drakit.core import driver as drivers
from drakit.core import site as sites
from drakit.devices.nic import addresses, config, exclusive, pods, register
from drakit.devices.nic.attach import attacher, counting, messages

if TYPE_CHECKING:
    from drakit.core import records

_NOTE = "whole"
_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


class Wholes:
    """Attaches whole interfaces to sandboxes."""

    def __init__(
        self, whole: exclusive.Whole, kernel: "attacher.Sandboxes", site: sites.Site, *, node: str, known: register.Register | None = None
    ) -> None:
        self._whole, self._kernel, self._site = whole, kernel, site
        self._book = addresses.Book(site, node=node, known=known)

    def attach(self, request: messages.Request, grant: Grant, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Move the interface of a prepared grant into the sandbox; raises RefusedError, DrakitError."""
        locks = (*grant.device.lock_names, *addresses.locks_for(_config(grant)))
        with self._site.hold(locks), self._kernel.opened(descriptor) as sandbox:
            current = self._wanted(request, is_waited_for)
            who = addresses.Who(cookie=sandbox.cookie, pod=request.pod)
            known = self._holder(current)
            if known != f"{who.cookie:x}":
                self._check_free(current, known)
                self._site.note(current, _NOTE, {"cookie": f"{who.cookie:x}", "pod": who.pod})
            typed = cast("exclusive.Grant", current)
            found = self._book.take(current, _config(current), who)
            try:
                outfit = self._whole.attach(typed, pods.Child(namespace=descriptor, name=""), found)
                self._wanted(request, is_waited_for)
            except Exception:
                if known != f"{who.cookie:x}":
                    self._whole.detach(typed)
                raise
            _log.info(
                "interface moved into pod",
                extra={
                    "claim": str(grant.claim),
                    "claim_uid": grant.claim.uid,
                    "device": grant.device.name,
                    "pod": request.pod,
                    "interface": outfit.name,
                },
            )

    def _wanted(self, request: messages.Request, is_waited_for: Callable[[], bool]) -> Grant:
        current = self._site.grant(request.claim, request.device, request.share_id)
        if current is None:
            raise counting.RefusedError(
                f"the claim's {request.device} is not prepared on this node; it is tried again when the claim is",
                counting.Reason.NOT_PREPARED,
            )
        if not is_waited_for():
            raise counting.RefusedError("nobody waits for the interface any more", counting.Reason.TOO_LATE)
        return current

    def _holder(self, grant: Grant) -> str:
        """The cookie of the sandbox that has the interface, as it was noted; empty when none has."""
        noted: Mapping[str, records.Json] = self._site.notes(grant).get(_NOTE, {})
        return str(noted.get("cookie", ""))

    def _check_free(self, grant: Grant, holder: str) -> None:
        if holder and not self._whole.is_free(cast("exclusive.Grant", grant)):
            raise counting.RefusedError(
                f"{grant.device.name} is a whole interface and in another pod of claim {grant.claim}; only one pod at a time can have it",
                counting.Reason.IN_ANOTHER_POD,
            )


def _config(grant: Grant) -> config.NicConfig:
    return grant.config if isinstance(grant.config, config.NicConfig) else config.NicConfig()
