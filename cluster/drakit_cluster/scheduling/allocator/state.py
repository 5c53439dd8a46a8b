"""The devices and counters of allocated claims: an incremental sum over their results.

Adding or removing a claim costs its number of results. A result with admin access holds nothing; a result with a share id takes its
consumed capacity (KEP-5075); any other result holds its device exclusively.

Recorded results count, not the current slices. A device that became shareable stays exclusive until its holder is removed. A device that
became exclusive is not allocated while shares remain. A changed policy never changes the consumed amounts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drakit_cluster.objects import capacity, json_types
from drakit_cluster.objects.capacity import Amounts
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Json, Object

PoolKey = tuple[str, str]
"""Driver and pool name."""


@dataclass(slots=True)
class Use:
    """The use of one device; ``taken`` is in nanos by capacity name."""

    holders: int = 0
    shares: int = 0
    taken: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return self.holders > 0

    @property
    def shared(self) -> bool:
        return self.shares > 0 or bool(self.taken)

    @property
    def unused(self) -> bool:
        return not (self.holders or self.shares or self.taken)

    @property
    def draws_counters(self) -> bool:
        """Whether some claim has the device, so that its counters are consumed (once, whatever the number of shares)."""
        return self.holders > 0 or self.shares > 0


UNUSED = Use()
"""The use of a device without holders."""
_NO_USES: Mapping[str, Use] = {}


@dataclass(frozen=True, slots=True)
class _Result:
    device: DeviceId
    shared: bool
    amounts: Amounts


class AllocatedState:
    """Devices, shares and capacity in use in the cluster."""

    def __init__(self, *, consumable_capacity: bool = True) -> None:
        """``consumable_capacity`` is the feature gate. If it is off, a result with a share id holds its device exclusively."""
        self._consumable_capacity = consumable_capacity
        self._uses: dict[PoolKey, dict[str, Use]] = {}
        self._claims: dict[str, list[_Result]] = {}

    @classmethod
    def of(cls, claims: Iterable[Object], *, consumable_capacity: bool = True) -> "AllocatedState":
        """Return the state after adding every claim; those without an allocation add nothing."""
        state = cls(consumable_capacity=consumable_capacity)
        for claim in claims:
            state.add(claim)
        return state

    def add(self, claim: Object) -> None:
        """Count the claim's results; a claim of the same UID added before is replaced.

        Raises QuantityError on a malformed consumed capacity; then nothing changes.
        """
        results = self._results(json_types.at(claim, "status", "allocation", "devices", "results"))
        key = _key(claim)
        self._release(key)
        self._claims[key] = results
        for result in results:
            self._count(result, 1)

    def remove(self, claim: Object) -> None:
        """Subtract what was added for the claim, whatever its results are now; an unknown claim is ignored."""
        self._release(_key(claim))

    def _release(self, key: str) -> None:
        for result in self._claims.pop(key, ()):
            self._count(result, -1)

    def _results(self, results: Json) -> list[_Result]:
        decoded = []
        for result in json_types.objects(results):
            if result.get("adminAccess") is True:
                continue
            device = DeviceId(json_types.text(result, "driver"), json_types.text(result, "pool"), json_types.text(result, "device"))
            shared = self._consumable_capacity and bool(result.get("shareID"))
            amounts = capacity.decode_amounts(result.get("consumedCapacity")) if shared else {}
            decoded.append(_Result(device, shared, amounts))
        return decoded

    def _count(self, result: _Result, sign: int) -> None:
        if result.shared:
            self.share(result.device, result.amounts, sign)
        else:
            self.hold(result.device, sign)

    def hold(self, device: DeviceId, sign: int = 1) -> None:
        """Count one holder of the whole device, or release it with -1."""
        use = self._use(device)
        use.holders += sign
        self._drop_unused(use, device)

    def share(self, device: DeviceId, amounts: Amounts, sign: int = 1) -> None:
        """Count one share and its consumption, or release it with -1."""
        use = self._use(device)
        use.shares += sign
        _consume(use, amounts, sign)
        self._drop_unused(use, device)

    def consume(self, device: DeviceId, amounts: Amounts, sign: int = 1) -> None:
        use = self._use(device)
        _consume(use, amounts, sign)
        self._drop_unused(use, device)

    def _use(self, device: DeviceId) -> Use:
        uses = self._uses.setdefault((device.driver, device.pool), {})
        use = uses.get(device.device)
        if use is None:
            use = uses[device.device] = Use()
        return use

    def _drop_unused(self, use: Use, device: DeviceId) -> None:
        """Drop the entry of a device that is no longer used."""
        if use.unused:
            key = (device.driver, device.pool)
            del self._uses[key][device.device]
            if not self._uses[key]:
                del self._uses[key]

    def pool(self, driver: str, pool: str) -> Mapping[str, Use]:
        """Return the uses in one pool by device name; a device that is not named is not used."""
        return self._uses.get((driver, pool), _NO_USES)

    def use(self, device: DeviceId) -> Use:
        return self.pool(device.driver, device.pool).get(device.device, UNUSED)

    def snapshot(self) -> dict[DeviceId, tuple[int, int, dict[str, int]]]:
        """Return all uses as (holders, shares, taken nanos), for comparison."""
        return {
            DeviceId(driver, pool, device): (use.holders, use.shares, dict(use.taken))
            for (driver, pool), uses in self._uses.items()
            for device, use in uses.items()
        }


def _consume(use: Use, amounts: Amounts, sign: int) -> None:
    taken = use.taken
    for name, amount in amounts.items():
        left = taken.get(name, 0) + sign * max(amount.nanos, 0)  # A status may hold any number; a negative share frees nothing.
        if left:
            taken[name] = left
        else:
            taken.pop(name, None)


def _key(claim: Object) -> str:
    uid = json_types.text(claim, "metadata", "uid")
    return uid or f"{json_types.text(claim, 'metadata', 'namespace')}/{json_types.text(claim, 'metadata', 'name')}"
