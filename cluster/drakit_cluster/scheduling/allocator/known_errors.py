"""The known errors of Kubernetes' schedulers, as values for the allocator.

Without them the allocator decides correctly. With those of a version (:data:`BY_VERSION`) it decides as that version does.
Sources: the structured allocator of Kubernetes 1.36.2; the allocators for consumable capacity of the branches of 1.34 and 1.35; for 1.37, the
allocator with KEP-5963, and kubernetes#140431, #140435, #140437 and #140600, which fixed errors of 1.36. 1.38 also has #140798, #141648 and
#141898; #140729 is open. Decisions were recorded on 1.36.2 alone.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class KnownError(enum.Enum):
    """One error; the value says what Kubernetes does."""

    KEPT_COUNTERS = "it does not release the counters of a device that it tried and rejected, until the decision ends"
    POOL_NAMES = "it keeps the counters of two drivers with one pool name in one place"
    ADMIN_COUNTERS = "it wants free counters even for admin access"
    DISTINCT_LAST = "distinctAttribute compares a device with the last one of each request only"
    LISTS_NOT_RESTORED = "matchAttribute on lists keeps what devices that it gave up had narrowed"
    SHARES_WITHOUT_CAPACITY = "it consumes the counters of a shared device again for each share, if its shares have no consumedCapacity"
    FORMER_SHARES = "it allocates a device that is no longer shared to one claim, although other claims still have shares of it"
    ALL_STOPS = "a request for all devices stops at a node with an incomplete or invalid pool, and other nodes are not tried"
    SHARES_COUNT_FREE = "it does not count the counters of shared devices that other claims have"
    EVERY_SHARE_DRAWS = "it consumes the counters of a shared device again for each share of one decision"
    DISTINCT_BY_DEVICE = "distinctAttribute refuses only the same device, whatever its value"
    RULE_WITHOUT_SELECTOR = "a DeviceTaintRule without deviceSelector taints every device"

    @property
    def fix(self) -> str:
        return _FIXES[self]


_FIXES: Mapping[KnownError, str] = {
    KnownError.KEPT_COUNTERS: (
        "name the GPU with a CEL selector in the first request, for example by its pciBusID: selectors are evaluated before counters"
    ),
    KnownError.POOL_NAMES: "give the pools of the two drivers different names",
    KnownError.ADMIN_COUNTERS: "ask for a device that no claim uses",
    KnownError.DISTINCT_LAST: "write one request for each device instead of a count",
    KnownError.LISTS_NOT_RESTORED: "select the wanted element with a CEL selector",
    KnownError.SHARES_WITHOUT_CAPACITY: "let the driver publish a capacity on the shared device, so that each share has consumedCapacity",
    KnownError.FORMER_SHARES: "release the shares before the driver stops sharing the device",
    KnownError.SHARES_COUNT_FREE: "do not publish shared devices that consume counters",
    KnownError.EVERY_SHARE_DRAWS: "do not publish shared devices that consume counters",
    KnownError.DISTINCT_BY_DEVICE: "select the devices of each request with CEL selectors",
    KnownError.RULE_WITHOUT_SELECTOR: "give the rule a deviceSelector, or delete it",
    KnownError.ALL_STOPS: "wait until the pool is complete, or write a count instead of allocationMode: All",
}


@dataclass(frozen=True, kw_only=True)
class KnownErrors:
    """The errors of ``version`` that a decision repeats. Such a search tries everything, and gives up after ``max_steps`` steps."""

    version: str = "1.36"
    kinds: frozenset[KnownError] = frozenset()
    max_steps: int = 300_000

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def __contains__(self, kind: KnownError) -> bool:
        return kind in self.kinds


NONE = KnownErrors()
_FORMER = frozenset({KnownError.SHARES_COUNT_FREE, KnownError.EVERY_SHARE_DRAWS, KnownError.DISTINCT_BY_DEVICE})
KUBERNETES_1_34 = KnownErrors(
    version="1.34",
    kinds=_FORMER
    | {KnownError.KEPT_COUNTERS, KnownError.ADMIN_COUNTERS, KnownError.DISTINCT_LAST, KnownError.FORMER_SHARES, KnownError.ALL_STOPS}
    | {KnownError.RULE_WITHOUT_SELECTOR},
)
"""It counts the counters of each slice by itself, so two pools of one name do not meet."""
KUBERNETES_1_35 = KnownErrors(
    version="1.35",
    kinds=frozenset(KnownError) - {KnownError.EVERY_SHARE_DRAWS, KnownError.DISTINCT_BY_DEVICE, KnownError.LISTS_NOT_RESTORED},
)
KUBERNETES_1_36 = KnownErrors(kinds=frozenset(KnownError) - _FORMER)
KUBERNETES_1_37 = KnownErrors(
    version="1.37",
    kinds=frozenset({KnownError.ADMIN_COUNTERS, KnownError.FORMER_SHARES, KnownError.ALL_STOPS, KnownError.RULE_WITHOUT_SELECTOR}),
)
KUBERNETES_1_38 = KnownErrors(version="1.38", kinds=frozenset({KnownError.ADMIN_COUNTERS}))
BY_VERSION: Mapping[str, KnownErrors] = {
    "1.34": KUBERNETES_1_34,
    "1.35": KUBERNETES_1_35,
    "1.36": KUBERNETES_1_36,
    "1.37": KUBERNETES_1_37,
    "1.38": KUBERNETES_1_38,
}
"""By version, for ``--kubernetes``: every version of ``objects.versions``."""


def of_version(version: str) -> KnownErrors:
    """Return the errors of a version; none for an empty text. Raises ValueError for an unknown version."""
    if version and version not in BY_VERSION:
        raise ValueError(f"the errors of version {version!r} are not known; write {' or '.join(BY_VERSION)}")
    return BY_VERSION.get(version, NONE)


def advice(kind: KnownError | None) -> str:
    """Return what a version does wrongly and the fix. None stands for a difference that no single error explains."""
    if kind is None:
        return (
            "several of its known errors come together, or its search of all combinations ends at its time limit; ask for less in one claim"
        )
    return f"{kind.value}; {kind.fix}"
