"""How far a claim is on the way to its pod's binding, for one driver's devices of one pool (KEP-5007). Pure."""

import dataclasses

from drakit.core import claim as claims


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """``allocated``: it has devices of the pool. ``waits``: the first binding condition of one of them is not True, and none has failed."""

    claim: claims.ClaimRef
    allocated: bool
    waits: bool
