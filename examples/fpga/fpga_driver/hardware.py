"""The FPGA boards of a node, and the bitstreams they can be programmed with. A folder of files, so that it works anywhere.

bitstreams/NAME.bit       what a board can run
boards/BOARD/model        the model's name; a board without it is gone
boards/BOARD/bitstream    what the board runs; absent when it is blank
boards/BOARD/loading      what is being loaded
boards/BOARD/slow         while this is there, loading does not end
boards/BOARD/broken       while this is there, the board takes no bitstream
"""

import dataclasses
import pathlib


class BoardError(Exception):
    """The board does not answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """One board as it was found."""

    name: str
    model: str
    works: bool


class Hardware:
    """Reads and programs boards. What it changes outlives this process, as real hardware does."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def boards(self) -> list[Board]:
        """Every board, by name."""
        found = sorted(file.parent for file in self._folder.glob("boards/*/model"))
        return [Board(name=one.name, model=(one / "model").read_text().strip(), works=not (one / "broken").exists()) for one in found]

    def bitstreams(self) -> frozenset[str]:
        """What a board can be programmed with."""
        return frozenset(file.stem for file in self._folder.glob("bitstreams/*.bit"))

    def running(self, board: str) -> str | None:
        """The bitstream that a board runs; None when it is blank, or gone."""
        return self._read(board, "bitstream")

    def loading(self, board: str) -> str | None:
        """The bitstream that a board is being programmed with."""
        return self._read(board, "loading")

    def program(self, board: str, bitstream: str) -> bool:
        """Program a board, or go on with it; whether it runs the bitstream now. Raises BoardError."""
        folder = self._folder / "boards" / board
        if not (folder / "model").exists() or (folder / "broken").exists():
            raise BoardError(f"board {board} does not answer")
        if self.running(board) == bitstream:
            return True
        self._write(board, "loading", bitstream)
        if (folder / "slow").exists():
            return False
        self._write(board, "bitstream", bitstream)
        (folder / "loading").unlink(missing_ok=True)
        return True

    def erase(self, board: str) -> None:
        """Make a board blank; one that is gone is fine."""
        for name in ("loading", "bitstream"):
            (self._folder / "boards" / board / name).unlink(missing_ok=True)

    def _read(self, board: str, name: str) -> str | None:
        try:
            return (self._folder / "boards" / board / name).read_text()
        except FileNotFoundError:
            return None

    def _write(self, board: str, name: str, text: str) -> None:
        """Whole or not at all, also when the process dies here."""
        new = self._folder / "boards" / board / f".{name}"
        new.write_text(text)
        new.replace(new.with_name(name))
