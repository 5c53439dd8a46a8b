"""Read the kubelet's checkpoint of claims: ``dra_manager_state`` in its root directory.

The format is not an API, so a file in another format is ignored. Since Kubernetes 1.34 it is
``{"Data": text, "Checksum": CRC-32 of the text}``; the text is a DRACheckpoint with ``ClaimInfoStateList[].ClaimUID``.
"""

import json
import pathlib
import zlib
from collections.abc import Iterator

from drakit.core import names

FILE = "dra_manager_state"
_SIZE_MAX = 64 << 20


def tracked(path: pathlib.Path) -> frozenset[names.ClaimUid] | None:
    """Return the claims that the kubelet still tracks; None if the file is missing, unreadable, or in another format."""
    try:
        with path.open("rb") as file:
            outer = json.loads(file.read(_SIZE_MAX))
        text = outer["Data"]
        if zlib.crc32(text.encode()) != outer["Checksum"]:
            return None
        return frozenset(_uids(json.loads(text)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _uids(checkpoint: dict[str, list[dict[str, str]]]) -> Iterator[names.ClaimUid]:
    for state in checkpoint["ClaimInfoStateList"] or ():
        yield names.ClaimUid(state["ClaimUID"])
