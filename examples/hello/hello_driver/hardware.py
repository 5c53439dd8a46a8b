"""The boards of a node. This one is a folder of text files, so that it works anywhere; replace it by calls to your device.

Each board is a folder of its own, such as ``board-0``, with three files: ``model`` has the model's name, ``memory`` a quantity such as 16Gi, and
``mode`` what the board was last told; it is absent when nobody uses the board.
"""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """One board as it was found."""

    name: str
    model: str
    memory: str


class Hardware:
    """Reads and changes boards. What it changes outlives this process, as real hardware does."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def boards(self) -> list[Board]:
        """Every board, by name."""
        folders = sorted(file.parent for file in self._folder.glob("*/model"))
        return [
            Board(name=one.name, model=(one / "model").read_text().strip(), memory=(one / "memory").read_text().strip()) for one in folders
        ]

    def exists(self, name: str) -> bool:
        """Whether the board is there."""
        return (self._folder / name / "model").exists()

    def mode(self, name: str) -> str | None:
        """What the board was last told; None when nobody uses it."""
        try:
            return (self._folder / name / "mode").read_text()
        except FileNotFoundError:
            return None

    def set_mode(self, name: str, mode: str) -> None:
        """Tell the board; whole or not at all, also when the process dies here."""
        new = self._folder / name / ".mode"
        new.write_text(mode)
        new.replace(self._folder / name / "mode")

    def reset(self, name: str) -> None:
        """Make the board as it was before anybody used it; a board that is gone is fine."""
        (self._folder / name / "mode").unlink(missing_ok=True)
