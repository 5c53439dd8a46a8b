"""The life cycle of a claim on a node, as a table, and its journal entry.

    absent      --begin-->            preparing     intents are on disk, hardware may be touched
    preparing   --refresh-->          preparing     some devices are finished; the next call continues with the rest
    preparing   --complete-->         prepared      hardware is set up, CDI files are written
    preparing   --begin_unprepare-->  unpreparing   hardware may be partly set up
    prepared    --refresh-->          prepared      repaired in place, or the edits changed (the node's libraries were upgraded)
    prepared    --begin_unprepare-->  unpreparing   CDI files may be gone
    unpreparing --begin_unprepare-->  unpreparing   repeated after a crash
    unpreparing --finish_unprepare--> absent        nothing is left

Two states would not be enough: after a crash between the removal of a CDI file and of the entry, the next prepare would return a file that does not
exist. Every other move is illegal and changes nothing. A prepare that finds a claim preparing or unpreparing undoes it first, unless the claim has
binding conditions or finished devices of this boot.
"""

import dataclasses
import enum
from collections.abc import Mapping

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import edits as cdi_edits
from drakit.core import names, quantity, records


class State(enum.Enum):
    """The state of a claim on this node."""

    ABSENT = "absent"
    PREPARING = "preparing"
    PREPARED = "prepared"
    UNPREPARING = "unpreparing"


class Move(enum.Enum):
    """A change of a claim's state."""

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
    """A move that is not in the table, which is a bug of the caller."""


def after(state: State, move: Move) -> State:
    """Return the state after a move. Raises IllegalMoveError for a move that is not in the table."""
    try:
        return TABLE[state, move]
    except KeyError:
        raise IllegalMoveError(f"a claim that is {state.value} cannot {move.value}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrantEntry:
    """The journal's entry of one grant.

    ``device`` is the flat device at the time of prepare, so that the grant can be undone after the hardware is gone. ``parameters`` are the effective
    opaque parameters (None: defaults). ``config`` is what they decode to, or None in an entry that was read from the journal, which does not keep it.
    ``record`` is empty and ``edits`` is None until the device is finished.
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
    config: object = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity within the claim: request, pool (the node's own or one of the cluster), device, share id."""
        return (self.request, self.device.node_pool(self.pool), self.device.name, self.share_id or "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """The journal's entry of one claim. ``boot_id`` is the boot in which it was last prepared."""

    claim: claims.ClaimRef
    state: State
    grants: tuple[GrantEntry, ...]
    boot_id: str = ""


HeldDevice = tuple[devices.Device, str, claims.ClaimRef]
"""The device of a grant as it was granted, the name of its pool, and the claim."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holding:
    """A grant in the journal, with the claim, device and amounts that the check against double use needs."""

    claim: claims.ClaimRef
    state: State
    device: devices.Device
    share_id: names.ShareId | None
    admin_access: bool
    consumed_capacity: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
