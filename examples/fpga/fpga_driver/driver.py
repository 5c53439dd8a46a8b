"""FPGA boards that are programmed before the pod that will use them is bound to the node (KEP-5007, binding conditions).

Programming takes minutes and can fail. With binding conditions the scheduler first picks a board, then waits for the driver's word, and only then
binds the pod; where programming fails it takes another board, on another node if need be, and the pod never got stuck on this one.
"""

import dataclasses
from typing import ClassVar

import drakit
from fpga_driver import hardware

PROGRAMMED, FAILED = "fpga.example.com/programmed", "fpga.example.com/programming-failed"
BROKEN = drakit.Taint(key="fpga.example.com/broken", effect=drakit.TaintEffect.NO_SCHEDULE)
ASK_AGAIN = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FpgaConfig:
    """What a claim or a class may write: the bitstream that the board shall run."""

    api_version: ClassVar[str] = "fpga.example.com/v1"
    kind: ClassVar[str] = "FpgaConfig"
    bitstream: str = "passthrough"


class FpgaDriver(drakit.Driver[FpgaConfig]):
    """Offers every board; ``ask_again`` is how many seconds pass between two looks at a board that is being programmed."""

    name = "fpga.example.com"
    config_types = (FpgaConfig,)

    def __init__(self, boards: hardware.Hardware, *, ask_again: float = ASK_AGAIN) -> None:
        self._hardware = boards
        self._ask_again = ask_again
        self._context: drakit.DriverContext | None = None

    def start(self, context: drakit.DriverContext) -> None:
        """Keep the context: a board that breaks is published as broken at once."""
        self._context = context

    def discover(self) -> drakit.Inventory:
        """Every board that is there now; one that takes no bitstream is tainted, so that no claim gets it."""
        return drakit.Inventory.of(_device(board) for board in self._hardware.boards())

    def bind(self, grant: drakit.Grant[FpgaConfig]) -> None:
        """Program the board. Called again and again until the board is ready, so a crash in the middle costs nothing but time."""
        board, bitstream = grant.device.name, grant.config.bitstream
        if bitstream not in self._hardware.bitstreams():
            known = ", ".join(sorted(self._hardware.bitstreams()))
            raise drakit.ConfigError(f"{bitstream!r} is not on this node; there are: {known}", field="bitstream")
        try:
            if not self._hardware.program(board, bitstream):
                raise drakit.RetryError(f"{board} is being programmed with {bitstream}", after=self._ask_again)
        except hardware.BoardError as error:
            if self._context is not None:
                self._context.rediscover()
            raise drakit.DeviceGoneError(str(error)) from error

    def prepare(self, grant: drakit.Grant[FpgaConfig]) -> drakit.Prepared:
        """Give the programmed board to the container; ``bind`` was called right before. A real board would add its device node here."""
        variable = grant.device.name.upper().replace("-", "_")
        return drakit.Prepared(edits=drakit.Edits(env={f"FPGA_{variable}": grant.config.bitstream}))

    def unprepare(self, grant: drakit.Grant[FpgaConfig]) -> None:
        """Make the board blank: it was prepared, or bound and not used after all, or half programmed."""
        self._hardware.erase(grant.device.name)


def _device(board: hardware.Board) -> drakit.Device:
    return drakit.Device(
        name=board.name,
        attributes={"model": board.model},
        taints=() if board.works else (BROKEN,),
        binds_to_node=True,
        binding_conditions=(PROGRAMMED,),
        binding_failure_conditions=(FAILED,),
    )
