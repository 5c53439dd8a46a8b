"""Spend the time of a call on its claims so that the answer arrives before the kubelet's deadline.

The kubelet discards an answer that comes after its deadline, also for the claims that were done. So a call for many claims starts a claim only while
there is time for it, and answers the rest with an error. The kubelet retries the whole call.
"""

from collections.abc import Callable, Iterator, Sequence

from drakit.core import claim as claims
from drakit.core import ports

ANSWER_SECONDS = 1.0
"""The time to encode, log and send the answer of a call with one claim."""
SECONDS_PER_ANSWER = 0.001
"""The time to log and encode the answer of one more claim, on a busy node."""


def is_waiting_for_lock(caller: ports.Caller) -> Callable[[], bool]:
    """Return a function that ends the wait for a lock while there is still time to answer who holds it."""
    left = caller.seconds_left()
    reserve = 0.0 if left is None else min(ANSWER_SECONDS, max(left, 0.0) / 10)

    def is_waiting() -> bool:
        seconds = caller.seconds_left()
        return caller.is_waiting() and (seconds is None or seconds > reserve)

    return is_waiting


def spend(refs: Sequence[claims.ClaimRef], caller: ports.Caller, monotonic: Callable[[], float]) -> Iterator[tuple[claims.ClaimRef, str]]:
    """Yield each claim to work on with an empty text, and each claim for which there is no time with the error to answer.

    The first claim is always started. A later one is started while the time left exceeds the longest work so far, which is the time that the caller
    of this generator takes for one claim, and the time to answer.
    """
    reserve, longest, refusal = ANSWER_SECONDS + SECONDS_PER_ANSWER * len(refs), 0.0, ""
    for number, ref in enumerate(refs):
        left = caller.seconds_left()
        if not refusal and number and left is not None and left < reserve + longest:
            refusal = f"not started, because the call's time is over after {number} of its {len(refs)} claims; the next call continues with the rest"
        started = monotonic()
        yield ref, refusal
        longest = max(longest, monotonic() - started)
