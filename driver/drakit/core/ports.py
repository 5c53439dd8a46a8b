"""The ports of the engine and the publisher: protocols that adapters implement, and the values that only these protocols use.

The docstring of each port names the folder of its adapter; fakes are in the tests. Methods raise only the errors of ``core.errors``.
"""

import contextlib
import dataclasses
import datetime
import enum
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from drakit.core import claim, claim_status, context, device, driver, edits, lifecycle, names, records
from drakit.core.slices import leader_election, resource_slice


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApiServer:
    """The description of an API server. ``lacks`` names the feature gates whose fields its schema does not have, so that it never stores them.

    Both fields are empty where they are unknown.
    """

    version: str
    lacks: frozenset[str] = frozenset()


class Intents(Protocol):
    """A function that reads intents from a driver's journal."""

    def __call__(self, claim: names.ClaimUid | None = None, /) -> Iterable[records.Record]:
        """Return the intents of one claim's grants, or of all grants (the cost grows with their number)."""


def no_intents(_: names.ClaimUid | None = None) -> Iterable[records.Record]:
    """Return the intents of a node without prepared claims."""
    return ()


class Journal(Protocol):
    """The crash-safe journal of claims (drakit.journal).

    When a method returns, its change survives the death of the process. ``begin`` and ``finish_unprepare`` also survive a power cut. A power cut may
    lose the last of the other changes, which is harmless: the next boot treats all claims as those of an earlier boot.
    """

    def entry(self, uid: names.ClaimUid) -> lifecycle.Entry | None:
        """Return the claim's entry, None when it is absent. The cost does not grow with the number of claims."""

    def entries(self, *, edits: bool = True) -> Sequence[lifecycle.Entry]:
        """Return all entries, oldest first; without ``edits``, which take most of the time, those may be None."""

    def holdings(self, pool: str, devices: Collection[str], shares: Collection[str] = ()) -> Sequence[lifecycle.Holding]:
        """Return the holdings of these devices, oldest first: grants without a share id, grants of these shares, and one share of each device.

        One share represents all shares of a device, so the cost grows neither with the number of claims nor of shares. It is never one of admin
        access, which never blocks and would hide the others.
        """

    def held_devices(self, boot_id: str) -> Sequence[lifecycle.HeldDevice]:
        """Return the device of each grant of a boot without admin access, oldest claim first. Nothing else of the claims is read."""

    def device_names(self, pool: str) -> Sequence[str]:
        """Return the names of the devices that claims hold, sorted. The cost grows with the devices, not with their shares."""

    def intents_of(self, pool: str, devices: Collection[str]) -> Sequence[records.Record]:
        """Return the intents of these devices' grants, oldest claim first. The cost grows only with the grants of these devices."""

    def begin(self, entry: lifecycle.Entry) -> None:
        """Insert an absent claim as preparing, with its intents. Raises IllegalMoveError when the claim exists.

        Callers check that no two grants have the same ``key``.
        """

    def complete(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry], boot_id: str) -> None:
        """Move a preparing claim to prepared, with all records and edits."""

    def refresh(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """Update all records and edits of a preparing or prepared claim; its state and the driver's state stay."""

    def begin_unprepare(self, uid: names.ClaimUid) -> None:
        """Move a preparing, prepared or unpreparing claim to unpreparing."""

    def finish_unprepare(self, uid: names.ClaimUid) -> None:
        """Delete an unpreparing claim."""

    def forget(self, uid: names.ClaimUid, *, state: lifecycle.State | None = None) -> None:
        """Delete an entry, or only one in this state, without its hardware: another claim or a running pod may use that."""


class DriverState(Protocol):
    """The driver's own state (drakit.journal): records, which are deleted with their claim, and taints, which belong to a boot. Durable on return."""

    def state(self, uid: names.ClaimUid, grant: tuple[str, str, str, str]) -> Mapping[str, records.Record]:
        """Return the driver's state of a grant (``GrantEntry.key``) by key."""

    def set_state(self, uid: names.ClaimUid, grant: tuple[str, str, str, str], key: str, record: records.Record | None) -> None:
        """Store a record; None deletes it. Raises ClaimError when the grant is not prepared."""

    def taints(self) -> Mapping[str, Sequence[device.Taint]]:
        """Return the taints of this boot by device."""

    def taint(self, device: str, taint: device.Taint, *, since: datetime.datetime) -> None:
        """Add or replace a taint. A taint that equals the stored one keeps its time; a new one without a time gets ``since``."""

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of a key, if there are any."""


class ClaimReporter(Protocol):
    """The receiver of claim results. Every call returns at once and never raises."""

    def prepared(self, ref: claim.ClaimRef) -> None:
        """Report that all devices of the claim are prepared."""

    def failed(self, ref: claim.ClaimRef, error: Exception) -> None:
        """Report that preparing the claim failed with this error."""

    def unprepared(self, ref: claim.ClaimRef) -> None:
        """Report that the claim is unprepared."""


class CdiDirectory(Protocol):
    """The CDI specification files of prepared grants (drakit.cdi): one file for each grant, replaced atomically."""

    def write(self, name: edits.CdiName, content: edits.Edits) -> None:
        """Write the file, unless it has this content already. It survives the process, but not a power cut."""

    def remove(self, claim_uid: names.ClaimUid) -> None:
        """Remove every file of a claim, if there are any."""

    def claims(self) -> frozenset[names.ClaimUid]:
        """Return the claims that have a file of this driver."""

    def of(self, claim_uid: names.ClaimUid) -> Mapping[edits.CdiName, edits.Edits | None]:
        """Return the identity and edits of each file of a claim, in order of name; a file whose content does not match its name is ignored.

        Edits that ``write`` did not write are None: the file was damaged or edited by hand.
        """


class DeviceMetadata(Protocol):
    """The files that describe a claim's devices to the programs in its containers. Methods raise CdiError. Calls for one claim do not overlap."""

    def add(
        self, ref: claim.ClaimRef, pod_claim_name: str, grant: lifecycle.GrantEntry, more: Mapping[str, device.AttributeValue]
    ) -> edits.Mount:
        """Describe a device with its attributes and ``more``, which override them, and return the mount of the file for a container."""

    def shows(self, mount: edits.Mount) -> bool:
        """Return whether ``add`` returned this mount."""

    def remove(self, uid: names.ClaimUid) -> None:
        """Remove all files of a claim, if there are any."""


class ClaimSource(Protocol):
    """The source of allocated claims (drakit.kube.claims, or a file)."""

    def fetch(self, ref: claim.ClaimRef) -> claim.Claim:
        """Return the present claim. Raises ClaimError when it is deleted, not allocated or replaced, ApiError when it cannot be read."""


class ClaimStatuses(Protocol):
    """The device statuses of this driver on this node in claims (drakit.kube.status)."""

    def write(self, ref: claim.ClaimRef, change: claim_status.StatusChange) -> None:
        """Write the change. Raises ClaimError when the claim is deleted, replaced or not allocated, ConfigError when the claim must be changed before
        its status can be written, ApiError when the write is rejected or not answered.
        """

    def is_blank(self, uid: names.ClaimUid) -> bool:
        """Return whether the claim is known to have no status of this driver, without a request."""


class Events(Protocol):
    """The Events for the users of claims (drakit.kube.events)."""

    def record(self, ref: claim.ClaimRef, event: context.Event, times: int, since: datetime.datetime) -> None:
        """Record an Event for each user of the claim, counted ``times``. Raises ClaimError when the claim is deleted or replaced, ApiError."""


class ClaimList(Protocol):
    """The claims of the cluster that have devices of this driver (drakit.kube.claims)."""

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claim.Listed:
        """Return the claims with a device of this driver for which ``serves(pool, device)`` is true, and the unreadable claims. Raises ApiError."""


class Bindings(Protocol):
    """The claims whose pods wait for devices of this driver on this node (drakit.kube.claims)."""

    def follow(self, stop: threading.Event) -> Iterator[claim.BindingState | None]:
        """Yield the binding state of claims when they change, until ``stop`` is set. Yield None before each complete list.

        Deletions without a connection are not reported, so callers must check their known claims after None.
        """


class SliceStore(Protocol):
    """The ResourceSlices of this driver on this node, or of its cluster pools (drakit.kube.slices)."""

    def list(self) -> Sequence[resource_slice.Published]:
        """Return all slices. Raises ApiError."""

    def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
        """Create one slice; the answer lacks the fields that the server dropped. Raises ApiError."""

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        """Replace one slice. Raises ApiError, with status 409 when it has changed."""

    def delete(self, published: resource_slice.Published) -> None:
        """Delete one slice, if it exists and is unchanged. Raises ApiError."""

    def server(self) -> ApiServer:
        """Return the description of the API server, refreshed at intervals by reads only; the last one while the server does not answer.

        The description is empty before the first answer. Never raise.
        """

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield at every change by another program, and where changes may have been missed, until ``stop`` is set. List the slices after each."""


class LeaseStore(Protocol):
    """One Lease of the cluster (drakit.kube.leases)."""

    def read(self) -> leader_election.Lease | None:
        """Return the lease, None if there is none. Raises ApiError."""

    def write(self, lease: leader_election.Lease) -> leader_election.Lease:
        """Create the lease where its ``version`` is empty, else replace that version. Raises ApiError, with status 409 when it has changed."""


class Locks(Protocol):
    """Named locks, shared by all threads and processes of this driver on the node (drakit.journal.locks)."""

    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
        """Hold all locks, acquired in sorted order to avoid a deadlock. Raises LockedError when ``wanted`` returns False while waiting."""


class Clock(Protocol):
    """A clock with wall-clock and monotonic time."""

    def now(self) -> datetime.datetime:
        """Return the wall-clock time in UTC."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time is over; return whether it is set."""


class MeteredClaim(Protocol):
    """The measurement of one claim. ``ok`` is False until the caller sets it."""

    ok: bool


class Meter(Protocol):
    """The metrics of one driver (drakit.node.metrics). A call takes microseconds and never fails."""

    def claim(self, verb: str) -> contextlib.AbstractContextManager[MeteredClaim]:
        """Measure one claim in the block; ``verb`` is prepare or unprepare."""

    def phase(self, phase: str) -> contextlib.AbstractContextManager[None]:
        """Measure one phase of a claim in the block. Its outcome is that of the claim, or its own outside a claim."""

    def published(self, writes: int) -> None:
        """Count the slices that one reconciliation wrote."""

    def failed_to_publish(self) -> None:
        """Count one failed reconciliation."""

    def watch_restarted(self) -> None:
        """Count one restart of the watch of slices."""


class UnmeasuredClaim:
    """A claim that is not measured."""

    ok = False


class Unmeasured:
    """A ``Meter`` that measures nothing."""

    def claim(self, verb: str) -> contextlib.AbstractContextManager[MeteredClaim]:
        """Do nothing."""
        del verb
        return contextlib.nullcontext(UnmeasuredClaim())

    def phase(self, phase: str) -> contextlib.AbstractContextManager[None]:
        """Do nothing."""
        del phase
        return contextlib.nullcontext()

    def published(self, writes: int) -> None:
        """Do nothing."""

    def failed_to_publish(self) -> None:
        """Do nothing."""

    def watch_restarted(self) -> None:
        """Do nothing."""


Caller = driver.Caller


class ClaimEngine(Protocol):
    """The engine that the gRPC service calls (drakit.node.engine)."""

    def prepare(self, refs: Sequence[claim.ClaimRef], caller: Caller) -> Mapping[names.ClaimUid, claim.Outcome]:
        """Prepare claims, and return exactly one outcome for each UID."""

    def unprepare(self, refs: Sequence[claim.ClaimRef], caller: Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims, and return an error text for each UID, empty on success."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodRequest:
    """A pod to create. ``environment`` is set in its only container."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class PodPhase(enum.Enum):
    """The phase of a pod on the API server.

    STARTING until its container runs, FAILING while an ended container waits for its restart, ENDING after the pod was deleted, OVER when the kubelet
    will never run it again.
    """

    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    ENDING = "ending"
    OVER = "over"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodState:
    """The phase of a pod, and the reason why its container does not run."""

    phase: PodPhase
    message: str = ""


class PodStore(Protocol):
    """The pods of one driver on its node (``kube.pods.ApiPods``). Every call is a few requests with a deadline. Methods raise ApiError."""

    @property
    def node(self) -> str:
        """Return the node's name."""

    def create(self, pod: PodRequest) -> None:
        """Create the pod from the template, unless a pod of that name exists."""

    def state(self, name: str) -> PodState | None:
        """Return the state of a pod, None if there is no pod of that name."""

    def delete(self, name: str) -> None:
        """Delete a pod, if it exists. Its container ends within seconds, or is killed."""

    def names(self) -> Collection[str]:
        """Return the names of the driver's pods on this node that are not being deleted."""
