"""What the hook's client and the driver say to each other: one message each way over a unix socket that keeps message boundaries.

A request is lines of text: ``attach 1``, claim UID, device, share id (``-``: a device given whole), container id, sandbox id, pod UID; the last two
may be empty, where a runtime does not tell them. With it comes one descriptor: the container's network namespace. The answer is ``ok``, or ``no`` and
a sentence for the pod's owner. A client of an earlier version may call for as long as a CDI file names it, so ``attach 1`` never changes its meaning.
"""

import dataclasses
import re

from drakit.core import names

REQUEST_MAX = 2048
ANSWER_MAX = 1024
OK = b"ok"
NO_SHARE = "-"
_HEADER = "attach 1"
_WORD = re.compile(r"[-._:0-9A-Za-z]{1,253}")


class MalformedError(ValueError):
    """Bytes that are no request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Whose interface is wanted: a share, and the container it is wanted for."""

    claim: names.ClaimUid
    device: str
    share_id: names.ShareId | None
    container: str
    sandbox: str = ""
    pod: str = ""


def decode(message: bytes) -> Request:
    """The request in a message; raises MalformedError."""
    try:
        header, claim, device, share, container, sandbox, pod = message.decode("ascii").split("\n")
    except ValueError as error:
        raise MalformedError("it is not seven lines of plain text") from error
    if header != _HEADER:
        raise MalformedError(f"it begins with {header[:64]!r}, not {_HEADER!r}")
    if not names.is_uid(claim) or not names.is_label(device) or not (share == NO_SHARE or names.is_uid(share)):
        raise MalformedError("it names no claim, device and share")
    if not _WORD.fullmatch(container) or any(word and not _WORD.fullmatch(word) for word in (sandbox, pod)):
        raise MalformedError("it names no container")
    return Request(
        claim=names.ClaimUid(claim),
        device=device,
        share_id=None if share == NO_SHARE else names.ShareId(share),
        container=container,
        sandbox=sandbox,
        pod=pod,
    )


def refusal(sentence: str) -> bytes:
    """The answer that says why not: one line of at most ``ANSWER_MAX`` bytes, without control characters, because runtimes print it."""
    plain = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in " ".join(sentence.split()))
    return f"no {plain}".encode(errors="replace")[:ANSWER_MAX]
