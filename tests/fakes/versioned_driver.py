"""Two releases of a driver for a board with four slots, which are files. The second one changed the form of intents and records."""

import pathlib

import drakit

SLOTS = 4


class Board:
    """Slots that a claim has are files with its UID, and outlive every process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def used(self) -> dict[int, str]:
        return {int(file.name): file.read_text() for file in sorted(self._folder.iterdir()) if file.suffix == ""}

    def take(self, slot: int, uid: str) -> None:
        new = self._folder / f"{slot}.new"
        new.write_text(uid)
        new.replace(self._folder / str(slot))

    def free(self, slot: int) -> None:
        (self._folder / str(slot)).unlink(missing_ok=True)


class Release1(drakit.Driver[drakit.NoConfig]):
    """Gives each share one slot: the intent is ``{"slot": 2}``, the record ``{"at": "2"}``."""

    name = "board.example.com"

    def __init__(self, board: Board) -> None:
        self.board = board

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory.of([drakit.Device(name="board", allow_multiple_allocations=True)])

    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        taken = {intent["slot"] for intent in self.planned(grant.device)}
        return {"slot": next(slot for slot in range(SLOTS) if slot not in taken)}

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        slot = int(str(grant.intent["slot"]))
        self.board.take(slot, grant.claim.uid)
        return drakit.Prepared(edits=drakit.Edits(env={f"SLOT_{slot}": "1"}), record={"at": str(slot)})

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        if grant.intent:
            self.board.free(int(str(grant.intent["slot"])))


class Release2(drakit.Driver[drakit.NoConfig], drakit.RecordUpgrade):
    """Gives each share several slots: the intent is ``{"slots": [2, 3]}``, the record ``{"at": [2, 3]}``. ``width`` is their number."""

    name = "board.example.com"
    records_version = 2
    width = 1

    def __init__(self, board: Board) -> None:
        self.board = board
        self.failure: Exception | None = None
        self.records: list[drakit.Record] = []

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory.of([drakit.Device(name="board", allow_multiple_allocations=True)])

    def upgrade_intent(self, intent: drakit.Record, version: int) -> drakit.Record:
        assert version == 1
        if self.failure is not None:
            raise self.failure
        return {"slots": [intent["slot"]]}

    def upgrade_record(self, record: drakit.Record, version: int) -> drakit.Record:
        assert version == 1
        return {"at": [int(str(record["at"]))]}

    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        taken = {slot for intent in self.planned(grant.device) for slot in slots(intent)}
        free = [slot for slot in range(SLOTS) if slot not in taken]
        return {"slots": free[: self.width]}

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        self.records.append(grant.record)
        mine = slots(grant.intent)
        for slot in mine:
            self.board.take(slot, grant.claim.uid)
        return drakit.Prepared(edits=drakit.Edits(env={f"SLOT_{slot}": "1" for slot in mine}), record={"at": list(mine)})

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        for slot in slots(grant.intent):
            self.board.free(slot)


def slots(intent: drakit.Record) -> tuple[int, ...]:
    chosen = intent.get("slots")
    assert chosen is None or isinstance(chosen, list | tuple), chosen
    return tuple(int(str(slot)) for slot in chosen or ())
