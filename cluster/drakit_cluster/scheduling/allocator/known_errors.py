"""The known errors of Kubernetes' schedulers, as values for the allocator.

Without them the allocator decides correctly. With :data:`KUBERNETES_1_36` or :data:`KUBERNETES_1_37` it decides as that version does.
Sources: the structured allocator of Kubernetes 1.36.2; for 1.37, the allocator with KEP-5963, and kubernetes#140431, #140435, #140437 and
#140600, which fixed errors of 1.36. 1.38 also has #140798 and #141898; #140729 is open.
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
KUBERNETES_1_36 = KnownErrors(kinds=frozenset(KnownError))
KUBERNETES_1_37 = KnownErrors(
    version="1.37",
    kinds=frozenset({KnownError.ADMIN_COUNTERS, KnownError.FORMER_SHARES, KnownError.ALL_STOPS, KnownError.RULE_WITHOUT_SELECTOR}),
)
BY_VERSION: Mapping[str, KnownErrors] = {"1.36": KUBERNETES_1_36, "1.37": KUBERNETES_1_37}
"""By version, for ``--kubernetes``. Those of other versions were not recorded."""


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
