"""The Xids: the numbers under which NVIDIA's driver reports GPU errors, and what each means for the users of the GPU.

Source: NVIDIA, "Xid Errors", chapter "Analyzing Xid Errors with the Xid Catalog" (immediate action of each Xid on Ampere and newer). Where the
catalog recommends a restart of the application, or nothing, the GPU is not at fault. Where it recommends a reset or a reboot, the GPU is. An unknown
number keeps new work away from the GPU.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping


class Gravity(enum.Enum):
    """The severity of an Xid: none, a program's own error, a GPU that gets no new work, a GPU on which no program can continue."""

    NOTHING = "nothing"
    PROGRAM = "program"
    SUSPECT = "suspect"
    FATAL = "fatal"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Xid:
    """One Xid. ``wide`` marks an Xid that affects the whole GPU even if NVML names a GPU instance."""

    number: int
    text: str
    gravity: Gravity
    wide: bool = False


_NOTHING: Mapping[int, str] = {
    14: "an event without meaning for users",
    63: "a memory row is to be remapped",
    92: "many corrected memory errors",
    106: "a change of the video link's state",
    107: "a change of the video link's state",
    137: "an NVLink access that was not allowed",
    141: "an error that follows from another",
    154: "the recovery action has changed",
    157: "a part of the GPU could not be retired",
    171: "the memory error was in DRAM",
    172: "the memory error was in SRAM",
}
_PROGRAM: Mapping[int, str] = {
    8: "a program's work took too long",
    11: "a corrupted command stream",
    13: "an exception of the graphics engine",
    25: "a command stream that is not allowed",
    31: "a memory page fault",
    32: "a corrupted command stream",
    37: "a command that is not allowed",
    43: "a channel was reset after a program's error",
    45: "a channel was cleaned up after an earlier error",
    68: "an exception of the video engine",
    69: "an exception of the graphics engine class",
    80: "corrupted data was sent to the GPU",
    94: "a contained memory error",
}
_SUSPECT: Mapping[int, str] = {
    48: "an uncorrectable memory error",
    54: "the auxiliary power cable is not connected",
    64: "a memory row could not be remapped",
    74: "an NVLink error",
    109: "a context switch timed out",
    110: "a security fault",
    136: "training of an NVLink failed",
    142: "an error of the video encoder",
    **dict.fromkeys(range(144, 151), "an NVLink error"),
    151: "a key could not be rotated",
    155: "an NVLink error found by software",
    156: "a part of the GPU was retired",
}
_FATAL: Mapping[int, str] = {
    46: "the GPU stopped processing",
    62: "a micro-controller of the GPU halted",
    79: "the GPU has fallen off the bus",
    95: "an uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "an error of the GPU's system processor",
    140: "an unrecovered memory error",
    143: "the GPU could not be initialized",
    158: "the GPU does not answer in time",
}
_KNOWN: Mapping[int, Xid] = {
    number: Xid(number=number, text=text, gravity=gravity, wide=gravity is Gravity.FATAL)
    for gravity, texts in (
        (Gravity.NOTHING, _NOTHING),
        (Gravity.PROGRAM, _PROGRAM),
        (Gravity.SUSPECT, _SUSPECT),
        (Gravity.FATAL, _FATAL),
    )
    for number, text in texts.items()
}


def known() -> tuple[Xid, ...]:
    """Return all known Xids by number."""
    return tuple(_KNOWN[number] for number in sorted(_KNOWN))


def of(number: int, ignored: Collection[int] = ()) -> Xid:
    """Return the Xid of a number, with gravity NOTHING if the operator ignores it."""
    xid = _KNOWN.get(number, Xid(number=number, text="an error that this driver does not know", gravity=Gravity.SUSPECT))
    return dataclasses.replace(xid, gravity=Gravity.NOTHING) if number in ignored else xid
