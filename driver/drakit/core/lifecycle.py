"""The life of a claim on a node, as a table, and the memory kept of it.

    absent      --begin-->            preparing     intents are on disk, hardware may be touched
    preparing   --refresh-->          preparing     some devices are finished; the next call continues with the rest
    preparing   --complete-->         prepared      hardware is set up, CDI files are written
    preparing   --begin_unprepare-->  unpreparing   hardware may be half set up
    prepared    --refresh-->          prepared      repaired in place, or what containers get has changed (the node's libraries were upgraded)
    prepared    --begin_unprepare-->  unpreparing   CDI files may be gone
    unpreparing --begin_unprepare-->  unpreparing   asked again after a crash
    unpreparing --finish_unprepare--> absent        nothing is left

Four states, not two: with only absent and prepared, a crash between deleting a CDI file and dropping the record would let the next prepare
answer from a file that is not there. Every other move is illegal and changes nothing. A prepare that finds a half state (preparing or
unpreparing) after a crash undoes it first.
"""

import dataclasses
import enum
from collections.abc import Mapping

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import edits as cdi_edits
from drakit.core import names, quantity, records


class State(enum.Enum):
    """Where a claim is in its life."""

    ABSENT = "absent"
    PREPARING = "preparing"
    PREPARED = "prepared"
    UNPREPARING = "unpreparing"


class Move(enum.Enum):
    """What can happen to a claim."""

    BEGIN = "begin"
    COMPLETE = "complete"
    REFRESH = "refresh"
    BEGIN_UNPREPARE = "begin_unprepare"
    FINISH_UNPREPARE = "finish_unprepare"


TABLE: Mapping[tuple[State, Move], State] = {
    (State.ABSENT, Move.BEGIN): State.PREPARING,
    (State.PREPARING, Move.COMPLETE): State.PREPARED,
    (State.PREPARING, Move.REFRESH): State.PREPARING,
    (State.PREPARING, Move.BEGIN_UNPREPARE): State.UNPREPARING,
    (State.PREPARED, Move.REFRESH): State.PREPARED,
    (State.PREPARED, Move.BEGIN_UNPREPARE): State.UNPREPARING,
    (State.UNPREPARING, Move.BEGIN_UNPREPARE): State.UNPREPARING,
    (State.UNPREPARING, Move.FINISH_UNPREPARE): State.ABSENT,
}


class IllegalMoveError(Exception):
    """A move the table does not have: a bug of the caller."""


def after(state: State, move: Move) -> State:
    """The state after a move; raises IllegalMoveError for a move the table does not have."""
    try:
        return TABLE[state, move]
    except KeyError:
        raise IllegalMoveError(f"a claim that is {state.value} cannot {move.value}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrantEntry:
    """What is remembered of one grant.

    ``device`` is the whole flat device at prepare time, so that the grant can be undone when the hardware is no longer discovered.
    ``parameters`` are the winning opaque parameters as they were (None: defaults). ``record`` is empty and ``edits`` is None until the device is
    finished.
    """

    request: str
    pool: str
    device: devices.Device
    share_id: names.ShareId | None = None
    consumed_capacity: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    admin_access: bool = False
    parameters: records.Record | None = None
    config_source: claims.ConfigSource | None = None
    intent: records.Record = dataclasses.field(default_factory=records.empty)
    record: records.Record = dataclasses.field(default_factory=records.empty)
    edits: cdi_edits.Edits | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identity within the claim: request, the node's own pool or one of the cluster, device, share id."""
        return (self.request, self.device.node_pool(self.pool), self.device.name, self.share_id or "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """What is remembered of one claim; ``boot_id`` is that of the boot in which it was last prepared."""

    claim: claims.ClaimRef
    state: State
    grants: tuple[GrantEntry, ...]
    boot_id: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holding:
    """A grant that the journal holds, as the check against double use needs it: its claim, device and amounts."""

    claim: claims.ClaimRef
    state: State
    device: devices.Device
    share_id: names.ShareId | None
    admin_access: bool
    consumed_capacity: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
