"""What the engine and the publisher need of the world, as protocols, with the values that only these protocols use.

Adapters live in the folders named beside each port; fakes live in tests. Methods raise the errors of ``core.errors`` only.
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
    """``lacks`` names the feature gates whose fields are not in the server's schema; no gate can make it store them. Empty where it is not known."""

    version: str
    lacks: frozenset[str] = frozenset()


class Intents(Protocol):
    """Reads the intents that a driver's journal holds."""

    def __call__(self, claim: names.ClaimUid | None = None, /) -> Iterable[records.Record]:
        """Return the intents of one claim's grants, or of all grants (cost grows with their number)."""


def no_intents(_: names.ClaimUid | None = None) -> Iterable[records.Record]:
    """Return the intents of a node without prepared claims."""
    return ()


class Journal(Protocol):
    """Crash-safe memory of claims (drakit.journal).

    A method that returns has made its change: no end of the process takes it. ``begin`` and ``finish_unprepare`` outlive a power cut too. A power cut
    may take the last of the other changes, which the next boot treats as it treats all claims of an earlier one.
    """

    def entry(self, uid: names.ClaimUid) -> lifecycle.Entry | None:
        """The claim's entry, or None when it is absent. Cost does not grow with the number of claims."""

    def entries(self) -> Sequence[lifecycle.Entry]:
        """All entries, oldest first."""

    def holdings(self, pool: str, devices: Collection[str], shares: Collection[str] = ()) -> Sequence[lifecycle.Holding]:
        """What claims hold of these devices, oldest first: every grant without a share id, every grant of these shares, and one share of each device.

        One share stands for all of a device, so that the cost grows neither with the number of claims nor with that of shares. It is never one
        of admin access, which stands in nobody's way and would hide the others.
        """

    def intents_of(self, pool: str, device: str) -> Sequence[records.Record]:
        """The intents of a device's grants, oldest claim first. Cost grows with that device's grants alone."""

    def begin(self, entry: lifecycle.Entry) -> None:
        """absent -> preparing, with every intent; raises IllegalMoveError when the claim is known."""

    def complete(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry], boot_id: str) -> None:
        """preparing -> prepared, with every record and edit."""

    def refresh(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry]) -> None:
        """prepared -> prepared or preparing -> preparing, with every record and edit as they are now, a record may become empty; notes stay."""

    def begin_unprepare(self, uid: names.ClaimUid) -> None:
        """preparing, prepared or unpreparing -> unpreparing."""

    def finish_unprepare(self, uid: names.ClaimUid) -> None:
        """unpreparing -> absent."""


class Notebook(Protocol):
    """What a driver remembers beside its claims (drakit.journal): notes that go with a claim, taints that go with a boot. Durable on return."""

    def notes(self, uid: names.ClaimUid, grant: tuple[str, str, str, str]) -> Mapping[str, records.Record]:
        """The notes of a grant (``GrantEntry.key``) by key; empty when there are none."""

    def note(self, uid: names.ClaimUid, grant: tuple[str, str, str, str], key: str, record: records.Record | None) -> None:
        """Set a note, None to remove it; raises ClaimError when the grant is not prepared."""

    def taints(self) -> Mapping[str, Sequence[device.Taint]]:
        """The taints of this boot by device."""

    def taint(self, device: str, taint: device.Taint, *, since: datetime.datetime) -> None:
        """Add or replace; one that says the same as before keeps its time, a new one that names none gets ``since``."""

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of a key; none is success."""


class ClaimReporter(Protocol):
    """Who is told what became of a claim; every call returns at once and raises nothing."""

    def prepared(self, ref: claim.ClaimRef) -> None:
        """All devices of the claim are prepared."""

    def failed(self, ref: claim.ClaimRef, error: Exception) -> None:
        """The claim could not be prepared, and why."""

    def unprepared(self, ref: claim.ClaimRef) -> None:
        """Nothing of the claim is left."""


class CdiDirectory(Protocol):
    """CDI specification files of prepared grants (drakit.cdi); one file a grant, replaced atomically."""

    def write(self, name: edits.CdiName, content: edits.Edits) -> None:
        """Make the file hold exactly this; it outlives the process, not a power cut. Writing what is there changes nothing."""

    def remove(self, claim_uid: names.ClaimUid) -> None:
        """Remove every file of a claim; nothing to remove is success."""

    def claims(self) -> frozenset[names.ClaimUid]:
        """The claims that have a file of this driver."""

    def of(self, claim_uid: names.ClaimUid) -> Mapping[edits.CdiName, edits.Edits | None]:
        """What the files of a claim are named after, in order of name, and the edits they hold; a file whose content does not say so is left out.

        None stands for edits that are not such as ``write`` leaves: the file was damaged, or edited by hand.
        """


class DeviceMetadata(Protocol):
    """Files that describe a claim's devices to the programs in its containers. Raises CdiError. Calls for one claim do not overlap."""

    def add(
        self, ref: claim.ClaimRef, pod_claim_name: str, grant: lifecycle.GrantEntry, more: Mapping[str, device.AttributeValue]
    ) -> edits.Mount:
        """Describe a device with its attributes and ``more``, which win; return the mount that shows the file to a container."""

    def shows(self, mount: edits.Mount) -> bool:
        """Return whether ``add`` returned this mount."""

    def remove(self, uid: names.ClaimUid) -> None:
        """Remove all files of a claim; nothing to remove is success."""


class ClaimSource(Protocol):
    """Allocated claims (drakit.kube.claims, or a file)."""

    def fetch(self, ref: claim.ClaimRef) -> claim.Claim:
        """The claim as it is now; raises ClaimError when it is gone, not allocated or replaced, ApiError when it cannot be asked."""


class ClaimStatuses(Protocol):
    """The device statuses of this driver on this node in claims (drakit.kube.status)."""

    def write(self, ref: claim.ClaimRef, change: claim_status.StatusChange) -> None:
        """Make the change; raises ClaimError when the claim is gone, replaced or not allocated, ConfigError when the claim must be changed before its
        status can be written, ApiError when the write is refused or not answered.
        """

    def is_blank(self, uid: names.ClaimUid) -> bool:
        """Whether the claim is known to have no status of this driver; asks nobody."""


class Events(Protocol):
    """Events for the users of claims (drakit.kube.events)."""

    def record(self, ref: claim.ClaimRef, event: context.Event, times: int, since: datetime.datetime) -> None:
        """Record an Event for each user of the claim, with a count of ``times``. Raise ClaimError when the claim is deleted or replaced, ApiError."""


class ClaimList(Protocol):
    """The claims of the cluster that have devices of this driver (drakit.kube.claims)."""

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claim.Listed:
        """Return the claims with a device of this driver that ``serves(pool, device)``, and those that cannot be read; raises ApiError."""


class Bindings(Protocol):
    """The claims whose pods wait for devices of this driver on this node (drakit.kube.claims)."""

    def follow(self, stop: threading.Event) -> Iterator[claim.BindingState | None]:
        """Yield how claims stand, as they change and by anyone, until ``stop`` is set. None comes before all of them are told anew.

        Claims that were deleted while nobody could look are not told: ask for those that are known, after None.
        """


class SliceStore(Protocol):
    """The ResourceSlices of this driver on this node, or those of this driver that belong to no node (drakit.kube.slices)."""

    def list(self) -> Sequence[resource_slice.Published]:
        """All of them; raises ApiError."""

    def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
        """Create one; the answer may lack fields the server dropped. Raises ApiError."""

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        """Replace one; raises ApiError with status 409 when it changed meanwhile."""

    def delete(self, published: resource_slice.Published) -> None:
        """Delete one if it is still this one; gone already is success. Raises ApiError."""

    def server(self) -> ApiServer:
        """Return what the API server says of itself, read now and then and never by a write; the last answer while it does not answer.

        Where it never answered, the version is empty and nothing is known to be lacking. Never raises.
        """

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield at every change by another program, and where one may have been missed, until ``stop`` is set; list the slices after each."""


class LeaseStore(Protocol):
    """One Lease of the cluster (drakit.kube.leases)."""

    def read(self) -> leader_election.Lease | None:
        """The lease as it is, None where there is none; raises ApiError."""

    def write(self, lease: leader_election.Lease) -> leader_election.Lease:
        """Create the lease where its ``version`` is empty, else replace that version; raises ApiError with status 409 when it changed meanwhile."""


class Locks(Protocol):
    """Locks by name, shared by all threads and processes of this driver on the node (drakit.journal.locks)."""

    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] = ...) -> contextlib.AbstractContextManager[None]:
        """Hold all of them, taken in sorted order so that no two holders wait for each other.

        Raises CallerGoneError when ``wanted`` turns false while waiting.
        """


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime.datetime:
        """Wall-clock time, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time is over; whether it is set."""


class Meter(Protocol):
    """Whoever counts and times (drakit.node.metrics); costs microseconds and never fails."""

    def answered(self, verb: str, *, ok: bool, seconds: float) -> None:
        """One claim was answered; ``verb`` is prepare or unprepare."""

    def phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        """One phase of a claim's way is over; ``ok`` is that of the call which it was part of, or its own outside of calls."""

    def published(self, writes: int) -> None:
        """A round of publishing wrote so many slices."""

    def failed_to_publish(self) -> None:
        """A round of publishing failed, and will be tried again."""

    def watch_restarted(self) -> None:
        """The watch of slices broke and was started anew."""


class Unmeasured:
    """A ``Meter`` that measures nothing."""

    def answered(self, verb: str, *, ok: bool, seconds: float) -> None:
        """Nothing."""

    def phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        """Nothing."""

    def published(self, writes: int) -> None:
        """Nothing."""

    def failed_to_publish(self) -> None:
        """Nothing."""

    def watch_restarted(self) -> None:
        """Nothing."""


Caller = driver.Caller


class ClaimEngine(Protocol):
    """What the gRPC service calls (drakit.node.engine)."""

    def prepare(self, refs: Sequence[claim.ClaimRef], caller: Caller) -> Mapping[names.ClaimUid, claim.Outcome]:
        """Prepare claims; one outcome for each UID asked for, never more or fewer."""

    def unprepare(self, refs: Sequence[claim.ClaimRef], caller: Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims; an error text for each UID asked for, empty for success."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodRequest:
    """A pod that should run. ``environment`` is set in its only container."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class PodPhase(enum.Enum):
    """What the API server knows of a pod.

    STARTING until its container has run, FAILING while one that ended waits to be started again, ENDING once the pod was deleted, OVER when the
    kubelet will never run it again.
    """

    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    ENDING = "ending"
    OVER = "over"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodState:
    """A pod's phase, and why its container does not run."""

    phase: PodPhase
    message: str = ""


class PodStore(Protocol):
    """The pods of one driver on its node (``kube.pods.ApiPods``). Every call is one or few requests with a deadline; all raise ApiError."""

    @property
    def node(self) -> str:
        """The node's name; pods of other nodes may have any name that is not used here."""

    def create(self, pod: PodRequest) -> None:
        """Create the pod from the template; a pod of that name that is there already is left as it is."""

    def state(self, name: str) -> PodState | None:
        """Return the state of a pod, None where there is no pod of that name."""

    def delete(self, name: str) -> None:
        """Delete a pod; one that is gone already is success. Its container ends within seconds, or is killed."""

    def names(self) -> Collection[str]:
        """Return the names of all pods that this driver created on this node, those that are being deleted left out."""
