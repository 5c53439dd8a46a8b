"""Events for a claim whose devices one container cannot use together; a claim gets them once, with its last device.

They are no warnings: a driver does not know which containers name which requests, and a pod with one request for each container is right.

A CUDA process sees one MIG device (MIG user guide). An MPS daemon serves one grant, and a container reaches one daemon: the mounts of a second
daemon replace those of the first.
"""

from collections.abc import Iterable, Iterator, Mapping

import drakit

_MIG = "The claim has several MIG devices; CUDA sees only one of them in each process, so check that each container names one request."
_MPS = (
    "The claim has several devices with MPS daemons of their own; a container reaches only one daemon, "
    "so check that each container names one request."
)


def of_claim(intents: Iterable[drakit.Record], mine: drakit.Record) -> Iterator[drakit.Event]:
    """Return the events for the grant of intent ``mine``; ``intents`` are those of its claim's grants, including it."""
    claim_intents = list(intents)
    for reason, message, key in (("SeveralMigDevices", _MIG, "profile"), ("SeveralMpsDaemons", _MPS, "mps")):
        matching = [intent for intent in claim_intents if _has(intent, key)]
        if len(matching) > 1 and max(matching, key=lambda intent: str(intent.get("holder", ""))) == mine:
            yield drakit.Event(reason=reason, message=message, type=drakit.EventType.NORMAL)


def _has(intent: drakit.Record, key: str) -> bool:
    settings = intent.get("settings")
    return key in intent or (isinstance(settings, Mapping) and key in settings)
