"""Checks of a whole cluster: whether its scheduler bears the counters that all drivers publish, and which drivers have claims but no slices."""

import dataclasses
import http
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from drakit import settings as values
from drakit.admission import lenient_json
from drakit.cli.doctor import api
from drakit.core import errors
from drakit.core.advanced import Finding
from drakit.kube import api_objects, claims, client, slices
from drakit.telemetry import plurals

TOPIC = "cluster"
Pool = tuple[str, str]
"""Driver and name."""
SCALES_SINCE = (1, 37)
"""Kubernetes versions before this one take time for every pool with counters on every node (kubernetes#138917)."""
POOLS_MAX = 50
"""Pools with counters from which such a scheduler needs about a second for each claim (docs/reference/performance.md)."""
SECONDS = 60.0
_PAGE = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """The slices of a cluster, and the pools in them, with those that have counters."""

    slices: int
    pools: frozenset[Pool]
    counted: frozenset[Pool]


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check the slices and claims of all drivers of the cluster. Reads them page by page, because a big cluster has hundreds of MiB.

    Raises SettingsError for a kubeconfig that cannot be used.
    """
    server = client.connect(settings.api.kubeconfig, seconds=SECONDS)
    try:
        version = server.request("GET", "/version")
        name, number = api.version_of(version)
        yield api.version_finding(server.server, name, number)
        published = read(server)
        held = _held_or_why(server)
    except errors.ApiError as error:
        fix = "check the address, and that this host can reach it"
        if error.status == http.HTTPStatus.FORBIDDEN:
            fix = "use a kubeconfig that may list resourceslices; drivers may read only their own"
        yield Finding.failed(TOPIC, server.server, str(error), fix)
        return
    finally:
        server.close()
    yield of_counters(published, name, number)
    yield from of_claims(held, published.pools)


def read(server: client.Client) -> Published:
    """Return the pools of all slices. Raises ApiError."""
    number, pools, counted = 0, set[Pool](), set[Pool]()
    for item in _listed(server, slices.PATH):
        spec = item.get("spec") if isinstance(item, Mapping) else None
        pool = spec.get("pool") if isinstance(spec, Mapping) else None
        if not isinstance(spec, Mapping) or not isinstance(pool, Mapping):
            continue
        key = str(spec.get("driver")), str(pool.get("name"))
        number += 1
        pools.add(key)
        counted |= {key} if spec.get("sharedCounters") else set()
    return Published(slices=number, pools=frozenset(pools), counted=frozenset(counted))


def _held_or_why(server: client.Client) -> Mapping[Pool, int] | str:
    try:
        return held_pools(server)
    except errors.ApiError as error:
        return str(error)


def held_pools(server: client.Client) -> Mapping[Pool, int]:
    """Return how many claims have devices of each pool. Raises ApiError."""
    counts: Counter[Pool] = Counter()
    for item in _listed(server, claims.LIST_PATH):
        results = lenient_json.objects(item, "status", "allocation", "devices", "results")
        counts.update({(lenient_json.text(result, "driver"), lenient_json.text(result, "pool")) for result in results})
    return counts


def _listed(server: client.Client, path: str) -> Iterator[object]:
    """Yield the objects of a list, read page by page. Raises ApiError."""
    query = {"limit": str(_PAGE)}
    while True:
        page = api_objects.FORMAT.decode(api_objects.ObjectList, server.request("GET", path, query=query))
        yield from page.items
        query["continue"] = page.continue_
        if not query["continue"]:
            return


def of_claims(held: Mapping[Pool, int] | str, published: Collection[Pool]) -> Iterator[Finding]:
    """Yield whether all pools whose devices claims have are published; ``held`` is why the claims are unknown if they are."""
    if isinstance(held, str):
        yield Finding.unknown(TOPIC, "claims", held, "use a kubeconfig that may list resourceclaims in all namespaces")
        return
    lost = {pool: number for pool, number in sorted(held.items()) if pool not in published}
    for (driver, name), number in lost.items():
        have = "has" if number == 1 else "have"
        message = f"no slices in pool {name}, and {plurals.counted(number, 'claim')} {have} devices of it"
        yield Finding.failed(
            TOPIC, driver, message, f"check that the driver runs on its node: kubectl get pods -A --field-selector spec.nodeName={name}"
        )
    if not lost:
        yield Finding.ok(TOPIC, "claims", f"{plurals.counted(len(held), 'pool')} with devices in use; all have slices")


def of_counters(published: Published, name: str, number: tuple[int, int] | None) -> Finding:
    """Return whether the scheduler of a version bears the pools with counters."""
    subject, count = "counters", len(published.counted)
    all_of_them = f"{plurals.counted(published.slices, 'slice')} in {plurals.counted(len(published.pools), 'pool')}"
    drivers = ", ".join(sorted({driver for driver, _ in published.counted}))
    message = f"{all_of_them}; {plurals.counted(count, 'pool')} with sharedCounters{f' ({drivers})' if drivers else ''}"
    if number is None:
        return Finding.unknown(TOPIC, subject, f"{message}; whether the scheduler bears them depends on its version")
    if count < POOLS_MAX or number >= SCALES_SINCE:
        return Finding.ok(TOPIC, subject, message)
    return Finding.warning(
        TOPIC,
        subject,
        f"{message}: kube-scheduler before 1.37 looks at each of them for every node, so a claim takes seconds from about 100 on and no pod with a "
        f"claim is scheduled at 300 (this cluster is {name})",
        "upgrade to Kubernetes 1.37, or fix the MIG layout of GPUs, which needs no counters: docs/howto/gpu-mig-layouts.md",
    )
