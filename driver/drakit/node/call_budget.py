"""Spend the time of a call on its claims so that the answer arrives before the kubelet's deadline.

The kubelet discards an answer that comes after its deadline, also for the claims that were done. So a call for many claims starts a claim only while
there is time for it, and answers the rest with an error. The kubelet retries the whole call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from drakit.core import claim as claims
from drakit.core import names, ports

ANSWER_SECONDS = 1.0
"""The time to encode, log and send the answer of a call with one claim."""
SECONDS_PER_ANSWER = 0.001
"""The time to log and encode the answer of one more claim, on a busy node."""

Answer = TypeVar("Answer")
ClaimWrapper = Callable[[Callable[[], Answer]], Answer]
"""A function that calls the work of one claim, for example to time it."""


def call_directly(work: Callable[[], Answer]) -> Answer:
    """Call the work of a claim directly, without a wrapper."""
    return work()


def is_waiting_for_lock(caller: ports.Caller) -> Callable[[], bool]:
    """Return a function that ends the wait for a lock while there is still time to answer who holds it."""
    left = caller.seconds_left()
    reserve = 0.0 if left is None else min(ANSWER_SECONDS, max(left, 0.0) / 10)

    def is_waiting() -> bool:
        seconds = caller.seconds_left()
        return caller.is_waiting() and (seconds is None or seconds > reserve)

    return is_waiting


def spend(
    refs: Sequence[claims.ClaimRef],
    caller: ports.Caller,
    work: Callable[[claims.ClaimRef], Answer],
    put_off: Callable[[str], Answer],
    *,
    monotonic: Callable[[], float],
) -> tuple[Mapping[names.ClaimUid, Answer], bool]:
    """Return the answers of ``work`` for each claim, and whether every claim was started.

    The first claim is always started. A later one is started while the time left exceeds the longest work so far and the time to answer. The others
    get the answer of ``put_off`` to an error text.
    """
    answers: dict[names.ClaimUid, Answer] = {}
    reserve, longest = ANSWER_SECONDS + SECONDS_PER_ANSWER * len(refs), 0.0
    for number, ref in enumerate(refs):
        left = caller.seconds_left()
        if number and left is not None and left < reserve + longest:
            error = f"not started, because the call's time is over after {number} of its {len(refs)} claims; the next call continues with the rest"
            answers |= {later.uid: put_off(error) for later in refs[number:]}
            return answers, False
        started = monotonic()
        answers[ref.uid] = work(ref)
        longest = max(longest, monotonic() - started)
    return answers, True
