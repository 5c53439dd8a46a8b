"""Claims that were just read are kept for a short time, few at a time."""

from drakit.core import names
from drakit.kube import recent_claims
from fakes import manual_clock


def uid(number: int) -> names.ClaimUid:
    return names.ClaimUid(f"0f2c8d3e-1a5b-4c7d-9e8f-{number:012d}")


def test_a_claim_is_kept_until_it_is_old_or_dropped() -> None:
    clock = manual_clock.ManualClock()
    recent = recent_claims.RecentClaims(clock)
    recent.put(uid(1), {"a": 1})
    recent.put(uid(2), {"a": 2})
    recent.drop(uid(2))
    assert (recent.get(uid(1)), recent.get(uid(2))) == ({"a": 1}, None)
    clock.moment = recent_claims.KEPT_SECONDS
    assert recent.get(uid(1)) is None


def test_old_claims_take_no_memory_and_there_are_never_many() -> None:
    clock = manual_clock.ManualClock()
    recent = recent_claims.RecentClaims(clock)
    for number in range(2 * recent_claims.KEPT_MAX):
        recent.put(uid(number), {})
    assert len(recent._kept) == recent_claims.KEPT_MAX
    clock.moment = recent_claims.KEPT_SECONDS
    recent.put(uid(0), {})
    assert len(recent._kept) == 1
