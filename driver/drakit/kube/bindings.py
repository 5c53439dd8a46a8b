"""Which claims wait for a driver's devices before their pods can be bound (KEP-5007), from a watch of all claims of the cluster.

Needs the rights to list and to watch resourceclaims, which a driver without binding conditions does without.
"""

import threading
from collections.abc import Iterator

from drakit.core import binding, ports
from drakit.kube import claim_codec, fields, transport, watch
from drakit.kube import claims as kube_claims
from drakit.telemetry import logs

_log = logs.get_logger(__name__)


class ApiBindings:
    """``core.ports.Bindings`` for one driver's devices of one pool."""

    def __init__(self, api: transport.Transport, *, driver: str, pool: str, clock: ports.Clock) -> None:
        self._api = api
        self._driver = driver
        self._pool = pool
        self._clock = clock

    def follow(self, stop: threading.Event) -> Iterator[binding.Standing | None]:
        """Yield the standing of claims as they change, and None when all are about to be told anew, until ``stop`` is set."""
        for seen in watch.objects(self._api, kube_claims.LIST_PATH, clock=self._clock, stop=stop):
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

    def _standing(self, found: fields.Field, *, gone: bool) -> binding.Standing:
        ref = claim_codec.ref_of(found)
        ours = [one for one in found["status"]["allocation"]["devices"]["results"].each() if self._is_ours(one)]
        if gone or not ours:
            return binding.Standing(claim=ref, allocated=False, waits=False)
        met = {_identity(one): _true(one) for one in found["status"]["devices"].each()}
        waits = failed = False
        for one in ours:
            holding = met.get(_identity(one), frozenset())
            waits = waits or not holding.issuperset(one["bindingConditions"].texts()[:1])
            failed = failed or not holding.isdisjoint(one["bindingFailureConditions"].texts())
        return binding.Standing(claim=ref, allocated=True, waits=waits and not failed)

    def _is_ours(self, result: fields.Field) -> bool:
        return (result["driver"].value, result["pool"].value) == (self._driver, self._pool)


def _identity(item: fields.Field) -> tuple[str, ...]:
    return tuple(item[name].text_or_empty() for name in ("driver", "pool", "device", "shareID"))


def _true(entry: fields.Field) -> frozenset[str]:
    return frozenset(one["type"].text() for one in entry["conditions"].each() if one["status"].value == "True")
