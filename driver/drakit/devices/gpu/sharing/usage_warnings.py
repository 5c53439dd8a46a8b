"""Warnings to the users of a claim whose devices one container cannot use together; each is sent once, with the claim's last device.

A CUDA process sees one MIG device (MIG user guide). An MPS daemon serves one grant, and a container reaches one daemon: the mounts of a second daemon
replace those of the first.
"""

from collections.abc import Iterable, Iterator, Mapping

from drakit.core import context, records

_MIG = "The claim has several MIG devices; CUDA sees only one of them in each process, so give each container one."
_MPS = (
    "The claim has several devices with MPS daemons of their own; a container reaches only one daemon, so give each container one device."
)


def warnings(intents: Iterable[records.Record], mine: records.Record) -> Iterator[context.Event]:
    """Return the warnings for the grant of intent ``mine``; ``intents`` are those of all claims, including it."""
    claim = _claim(mine)
    same = [intent for intent in intents if _claim(intent) == claim]
    if _is_last(mine, [intent for intent in same if "profile" in intent]):
        yield context.Event(reason="SeveralMigDevices", message=_MIG)
    if _is_last(mine, [intent for intent in same if _has_mps(intent)]):
        yield context.Event(reason="SeveralMpsDaemons", message=_MPS)


def is_relevant(mine: records.Record) -> bool:
    """Return whether a grant can cause a warning at all."""
    return "profile" in mine or _has_mps(mine)


def _is_last(mine: records.Record, alike: list[records.Record]) -> bool:
    return len(alike) > 1 and max(alike, key=_holder) == mine


def _has_mps(intent: records.Record) -> bool:
    settings = intent.get("settings")
    return isinstance(settings, Mapping) and "mps" in settings


def _claim(intent: records.Record) -> str:
    return _holder(intent).partition("/")[0]


def _holder(intent: records.Record) -> str:
    return str(intent.get("holder", ""))
