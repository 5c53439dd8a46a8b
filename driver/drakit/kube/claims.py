"""Read ResourceClaims from the API server: fetch one, list those allocated to a driver, watch those that wait for a driver (KEP-5007).

The watch needs the rights to list and watch resourceclaims; only a driver with binding conditions has them.
"""

import http
import threading
from collections.abc import Callable, Iterator

from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.kube import api_objects, claim_codec, stored_claim, transport, watch
from drakit.telemetry import logs

TIMEOUT = 10.0
PAGE = 500
LIST_PATH = f"/apis/{claim_codec.API_VERSION}/resourceclaims"

_log = logs.get_logger(__name__)

Seen = Callable[[claims.ClaimRef, transport.Object], None]


class ApiClaims:
    """A ``core.ports.ClaimSource`` without a cache, because a claim may be replaced at any time.

    ``seen`` is called with every claim that was read with the requested UID.
    """

    def __init__(self, api: transport.Transport, *, seen: Seen | None = None) -> None:
        self._api = api
        self._seen = seen

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Return the claim from the server. Raise ClaimError or ApiError."""
        try:
            stored = self._api.request("GET", path(ref), timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim no longer exists") from error
            raise
        claim = claim_codec.decode(stored, ref)
        if self._seen is not None:
            self._seen(ref, stored)
        return claim


class ApiClaimList:
    """A ``core.ports.ClaimList`` that reads all claims of the cluster page by page, so its cost grows with their number."""

    def __init__(self, api: transport.Transport, *, page: int = PAGE) -> None:
        self._api = api
        self._page = page

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Return the claims with a device of this driver for which ``serves(pool, device)`` is true, and the unreadable claims. Raise ApiError."""
        allocated: list[claims.Claim] = []
        unreadable: set[names.ClaimUid] = set()
        query = {"limit": str(self._page)}
        while True:
            page = api_objects.FORMAT.decode(api_objects.ObjectList, self._api.request("GET", LIST_PATH, query=query, timeout=TIMEOUT))
            for item in page.items:
                try:
                    allocated += _served(item, driver, serves)
                except api_objects.UNREADABLE as error:
                    _log.warning("claim ignored: cannot be read", claim=api_objects.name_of(item), error=str(error) or type(error).__name__)
                    unreadable |= {names.ClaimUid(uid)} if (uid := api_objects.metadata_text(item, "uid")) else set()
            query["continue"] = page.continue_
            if not query["continue"]:
                return claims.Listed(claims=tuple(allocated), unreadable=frozenset(unreadable))


def _served(item: object, driver: str, serves: Callable[[str, str], bool]) -> tuple[claims.Claim, ...]:
    """Return the claim, or nothing where none of its devices is served. Raise the errors of decoding."""
    results = stored_claim.read(item).results
    if not any(result.driver == driver and serves(result.pool, result.device) for result in results):
        return ()
    return (claim_codec.decode(item, claim_codec.ref_of(item)),)


def path(ref: claims.ClaimRef) -> str:
    """Return the API path of a claim; the names were checked when the reference was made."""
    return f"/apis/{claim_codec.API_VERSION}/namespaces/{ref.namespace}/resourceclaims/{ref.name}"


class ApiBindings:
    """The ``core.ports.Bindings`` of one driver's devices in the pools of the node whose own pool is ``pool``."""

    def __init__(self, api: transport.Transport, *, driver: str, pool: str, clock: ports.Clock) -> None:
        self._api = api
        self._driver = driver
        self._pool = pool
        self._clock = clock

    def follow(self, stop: threading.Event) -> Iterator[claims.BindingState | None]:
        """Yield the binding state of claims when they change, and None before each complete list, until ``stop`` is set."""
        for observed in watch.objects(self._api, LIST_PATH, clock=self._clock, stop=stop):
            if observed is None:
                yield None
                continue
            try:
                state = self._state(observed.object, is_deleted=observed.is_deleted)
            except api_objects.UNREADABLE as error:
                _log.warning(
                    "claim ignored: cannot be read", claim=api_objects.name_of(observed.object), error=str(error) or type(error).__name__
                )
                continue
            yield state

    def _state(self, stored: transport.Object, *, is_deleted: bool) -> claims.BindingState:
        ref, claim = claim_codec.ref_of(stored), stored_claim.read(stored)
        own = [result for result in claim.results if result.driver == self._driver and names.is_pool_of_node(result.pool, self._pool)]
        if is_deleted or not own:
            return claims.BindingState(claim=ref, allocated=False, waits=False)
        true_conditions = {entry.key: _true_conditions(entry) for entry in claim.entries_of(self._driver)}
        waits = failed = False
        for result in own:
            conditions = true_conditions.get(result.key, frozenset())
            waits = waits or not conditions.issuperset(result.binding_conditions[:1])
            failed = failed or not conditions.isdisjoint(result.binding_failure_conditions)
        return claims.BindingState(claim=ref, allocated=True, waits=waits and not failed)


def _true_conditions(entry: stored_claim.Entry) -> frozenset[str]:
    conditions = map(stored_claim.condition, entry.conditions)
    return frozenset(condition.type for condition in conditions if condition.is_true)
