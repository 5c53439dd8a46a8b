"""What hello.example.com offers, and what it does for a claim. The contract is in the docstring of ``drakit.core.driver``."""

import dataclasses
from typing import ClassVar

import drakit
from hello_driver import hardware

MODES = ("normal", "turbo")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HelloConfig:
    """The opaque parameters of a claim or a class; decoded strictly, so an error names a misspelt field."""

    api_version: ClassVar[str] = "hello.example.com/v1"
    kind: ClassVar[str] = "HelloConfig"
    mode: str = "normal"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise drakit.ConfigError(f"{self.mode!r} is not known; known are {', '.join(MODES)}", field="mode")


class HelloDriver(drakit.Driver[HelloConfig]):
    """Offers every board, each to one claim at a time."""

    name = "hello.example.com"
    config_types = (HelloConfig,)

    def __init__(self, boards: hardware.Hardware) -> None:
        self._hardware = boards

    def discover(self) -> drakit.Inventory:
        """Return every board that is there now."""
        return drakit.Inventory.of(_device(board) for board in self._hardware.boards())

    def prepare(self, grant: drakit.Grant[HelloConfig]) -> drakit.Prepared:
        """Set the board's mode. A call that was cut short may have done so already."""
        board = grant.device.name
        if not self._hardware.exists(board):
            raise drakit.DeviceGoneError(f"board {board} is gone; look at the node's hardware")
        if self._hardware.mode(board) != grant.config.mode:
            self._hardware.set_mode(board, grant.config.mode)
        variable = f"HELLO_{board.upper().replace('-', '_')}"
        return drakit.Prepared(edits=drakit.Edits(env={variable: grant.config.mode}))

    def unprepare(self, grant: drakit.Grant[HelloConfig]) -> None:
        """Reset the board; also when it is gone, or was never set."""
        self._hardware.reset(grant.device.name)


def _device(board: hardware.Board) -> drakit.Device:
    return drakit.Device(
        name=board.name,
        attributes={"model": board.model},
        capacity={"memory": drakit.Capacity.of(board.memory)},
    )
