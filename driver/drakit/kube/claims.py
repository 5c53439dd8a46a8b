"""ResourceClaims at the API server: fetch one, list those allocated to a driver, follow those that wait for a driver (KEP-5007).

Following needs the rights to list and watch resourceclaims; only a driver with binding conditions has them.
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
    """``core.ports.ClaimSource``: every fetch asks the server, because the claim may have been replaced a moment ago.

    ``seen`` is shown every claim as it was read, once its UID was found to be the one asked for.
    """

    def __init__(self, api: transport.Transport, *, seen: Seen | None = None) -> None:
        self._api = api
        self._seen = seen

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Return the claim as it is now; raises ClaimError or ApiError."""
        try:
            found = self._api.request("GET", path(ref), timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim does not exist any more") from error
            raise
        claim = claim_codec.decode(found, ref)
        if self._seen is not None:
            self._seen(ref, found)
        return claim


class ApiClaimList:
    """``core.ports.ClaimList``: all claims of the cluster, read page by page. The cost grows with the number of claims."""

    def __init__(self, api: transport.Transport, *, page: int = PAGE) -> None:
        self._api = api
        self._page = page

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Return the claims with a device of this driver that ``serves(pool, device)``; raises ApiError. Unreadable claims are logged and named."""
        found: list[claims.Claim] = []
        unreadable: set[names.ClaimUid] = set()
        query = {"limit": str(self._page)}
        while True:
            page = api_objects.FORMAT.decode(api_objects.ObjectList, self._api.request("GET", LIST_PATH, query=query, timeout=TIMEOUT))
            for item in page.items:
                try:
                    found += _served(item, driver, serves)
                except api_objects.UNREADABLE as error:
                    _log.warning("claim ignored: cannot be read", claim=api_objects.name_of(item), error=str(error) or type(error).__name__)
                    unreadable |= {names.ClaimUid(uid)} if (uid := api_objects.metadata_text(item, "uid")) else set()
            query["continue"] = page.continue_
            if not query["continue"]:
                return claims.Listed(claims=tuple(found), unreadable=frozenset(unreadable))


def _served(item: object, driver: str, serves: Callable[[str, str], bool]) -> tuple[claims.Claim, ...]:
    """Return the claim, or nothing where none of its devices is served; raises what decoding raises."""
    results = stored_claim.read(item).results
    if not any(result.driver == driver and serves(result.pool, result.device) for result in results):
        return ()
    return (claim_codec.decode(item, claim_codec.ref_of(item)),)


def path(ref: claims.ClaimRef) -> str:
    """Path of a claim in the API; the names were checked when the reference was made."""
    return f"/apis/{claim_codec.API_VERSION}/namespaces/{ref.namespace}/resourceclaims/{ref.name}"


class ApiBindings:
    """``core.ports.Bindings`` for one driver's devices of the pools of the node whose own pool is ``pool``."""

    def __init__(self, api: transport.Transport, *, driver: str, pool: str, clock: ports.Clock) -> None:
        self._api = api
        self._driver = driver
        self._pool = pool
        self._clock = clock

    def follow(self, stop: threading.Event) -> Iterator[claims.BindingState | None]:
        """Yield the standing of claims as they change, and None before each complete list, until ``stop`` is set."""
        for seen in watch.objects(self._api, LIST_PATH, clock=self._clock, stop=stop):
            if seen is None:
                yield None
                continue
            try:
                standing = self._standing(seen.object, gone=seen.gone)
            except api_objects.UNREADABLE as error:
                _log.warning(
                    "claim ignored: cannot be read", claim=api_objects.name_of(seen.object), error=str(error) or type(error).__name__
                )
                continue
            yield standing

    def _standing(self, found: transport.Object, *, gone: bool) -> claims.BindingState:
        ref, claim = claim_codec.ref_of(found), stored_claim.read(found)
        ours = [one for one in claim.results if one.driver == self._driver and names.is_pool_of_node(one.pool, self._pool)]
        if gone or not ours:
            return claims.BindingState(claim=ref, allocated=False, waits=False)
        met = {entry.key: _true(entry) for entry in claim.entries_of(self._driver)}
        waits = failed = False
        for result in ours:
            holding = met.get(result.key, frozenset())
            waits = waits or not holding.issuperset(result.binding_conditions[:1])
            failed = failed or not holding.isdisjoint(result.binding_failure_conditions)
        return claims.BindingState(claim=ref, allocated=True, waits=waits and not failed)


def _true(entry: stored_claim.Entry) -> frozenset[str]:
    conditions = map(stored_claim.condition, entry.conditions)
    return frozenset(condition.type for condition in conditions if condition.is_true)
