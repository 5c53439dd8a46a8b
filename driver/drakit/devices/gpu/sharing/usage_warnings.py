"""What to tell the users of a claim that has several devices which one container cannot use together. Pure; said once, at the claim's last one.

CUDA enumerates a single MIG device in a process (MIG user guide). An MPS daemon serves one grant, and a container reaches one daemon: the mounts of a
second take the place of the first's.
"""

from collections.abc import Iterable, Iterator, Mapping

from drakit.core import context, records

_MIG = "The claim has several MIG devices; CUDA sees only one of them in each process, so give each container one."
_MPS = (
    "The claim has several devices with MPS daemons of their own; a container reaches only one daemon, so give each container one device."
)


def warnings(intents: Iterable[records.Record], mine: records.Record) -> Iterator[context.Event]:
    """What is to be said when the grant of an intent is prepared; ``intents`` are those of all claims, that one included."""
    claim = _claim(mine)
    same = [one for one in intents if _claim(one) == claim]
    if _is_last(mine, [one for one in same if "profile" in one]):
        yield context.Event(reason="SeveralMigDevices", message=_MIG)
    if _is_last(mine, [one for one in same if _has_mps(one)]):
        yield context.Event(reason="SeveralMpsDaemons", message=_MPS)


def is_relevant(mine: records.Record) -> bool:
    """Whether others of the claim matter at all."""
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
