"""The boards of a node. This one is a folder of text files, so that it works anywhere; replace it by calls to your device.

Each board is a folder of its own, such as ``board-0``, with three files: ``model`` has the model's name, ``memory`` a quantity such as 16Gi, and
``mode`` the mode that was set last; it is absent when nobody uses the board.
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
        """Return every board, by name."""
        return [_read(file.parent) for file in sorted(self._folder.glob("*/model"))]

    def exists(self, name: str) -> bool:
        """Return whether the board is there."""
        return (self._folder / name / "model").exists()

    def mode(self, name: str) -> str | None:
        """Return the mode that was set last; None when nobody uses the board."""
        try:
            return (self._folder / name / "mode").read_text()
        except FileNotFoundError:
            return None

    def set_mode(self, name: str, mode: str) -> None:
        """Set the board's mode; atomic, also when the process dies here."""
        new = self._folder / name / ".mode"
        new.write_text(mode)
        new.replace(self._folder / name / "mode")

    def reset(self, name: str) -> None:
        """Restore the board to its state before use; a board that is gone is fine."""
        (self._folder / name / "mode").unlink(missing_ok=True)


def _read(folder: pathlib.Path) -> Board:
    model, memory = ((folder / name).read_text().strip() for name in ("model", "memory"))
    return Board(name=folder.name, model=model, memory=memory)
