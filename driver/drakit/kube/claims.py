"""ResourceClaims at the API server: fetch one, list those allocated to a driver, follow those that wait for a driver (KEP-5007).

Following needs the rights to list and watch resourceclaims; only a driver with binding conditions has them.
"""

import http
import threading
from collections.abc import Callable, Iterator

from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.kube import claim_codec, fields, transport, watch
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
            answer = fields.Field(self._api.request("GET", LIST_PATH, query=query, timeout=TIMEOUT))
            for item in answer["items"].each():
                try:
                    found += _served(item, driver, serves)
                except fields.UNREADABLE as error:
                    _log.warning("claim ignored: cannot be read", claim=item.name(), error=str(error) or type(error).__name__)
                    unreadable |= {names.ClaimUid(uid)} if (uid := item.metadata_text("uid")) else set()
            query["continue"] = answer["metadata"]["continue"].text_or_empty()
            if not query["continue"]:
                return claims.Listed(claims=tuple(found), unreadable=frozenset(unreadable))


def _served(item: fields.Field, driver: str, serves: Callable[[str, str], bool]) -> tuple[claims.Claim, ...]:
    """Return the claim, or nothing where none of its devices is served; raises what decoding raises."""
    results = item["status"]["allocation"]["devices"]["results"]
    if not any(one["driver"].value == driver and serves(one["pool"].text(), one["device"].text()) for one in results.each()):
        return ()
    return (claim_codec.decode(item.object(), claim_codec.ref_of(fields.Field(item.object()))),)


def path(ref: claims.ClaimRef) -> str:
    """Path of a claim in the API; the names were checked when the reference was made."""
    return f"/apis/{claim_codec.API_VERSION}/namespaces/{ref.namespace}/resourceclaims/{ref.name}"


class ApiBindings:
    """``core.ports.Bindings`` for one driver's devices of one pool."""

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
            found = fields.Field(seen.object)
            try:
                standing = self._standing(found, gone=seen.gone)
            except fields.UNREADABLE as error:
                _log.warning("claim ignored: cannot be read", claim=found.name(), error=str(error) or type(error).__name__)
                continue
            yield standing

    def _standing(self, found: fields.Field, *, gone: bool) -> claims.BindingState:
        ref = claim_codec.ref_of(found)
        ours = [one for one in found["status"]["allocation"]["devices"]["results"].each() if self._is_ours(one)]
        if gone or not ours:
            return claims.BindingState(claim=ref, allocated=False, waits=False)
        met = {_identity(one): _true(one) for one in found["status"]["devices"].each()}
        waits = failed = False
        for one in ours:
            holding = met.get(_identity(one), frozenset())
            waits = waits or not holding.issuperset(one["bindingConditions"].texts()[:1])
            failed = failed or not holding.isdisjoint(one["bindingFailureConditions"].texts())
        return claims.BindingState(claim=ref, allocated=True, waits=waits and not failed)

    def _is_ours(self, result: fields.Field) -> bool:
        return (result["driver"].value, result["pool"].value) == (self._driver, self._pool)


def _identity(item: fields.Field) -> tuple[str, ...]:
    return tuple(item[name].text_or_empty() for name in ("driver", "pool", "device", "shareID"))


def _true(entry: fields.Field) -> frozenset[str]:
    return frozenset(one["type"].text() for one in entry["conditions"].each() if one["status"].value == "True")
