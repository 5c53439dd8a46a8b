"""Checks of a whole cluster: whether its scheduler bears the counters that all drivers publish."""

import dataclasses
import http
from collections.abc import Iterator, Mapping

from drakit import settings as values
from drakit.cli.doctor import api
from drakit.core import errors
from drakit.core.advanced import Finding
from drakit.kube import api_objects, client, slices
from drakit.telemetry import plurals

TOPIC = "cluster"
SCALES_SINCE = (1, 37)
"""Kubernetes versions before this one take time for every pool with counters on every node (kubernetes#138917)."""
POOLS_MAX = 50
"""Pools with counters from which such a scheduler needs about a second for each claim (docs/reference/performance.md)."""
SECONDS = 60.0
_PAGE = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """The slices of a cluster, and the pools (driver, name) in them, with those that have counters."""

    slices: int
    pools: frozenset[tuple[str, str]]
    counted: frozenset[tuple[str, str]]


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check the slices of all drivers of the cluster. Reads them page by page, because a big cluster has hundreds of MiB.

    Raises SettingsError for a kubeconfig that cannot be used.
    """
    server = client.connect(settings.api.kubeconfig, seconds=SECONDS)
    try:
        version = server.request("GET", "/version")
        name, number = api.version_of(version)
        yield api.version_finding(server.server, name, number)
        published = read(server)
    except errors.ApiError as error:
        fix = "check the address, and that this host can reach it"
        if error.status == http.HTTPStatus.FORBIDDEN:
            fix = "use a kubeconfig that may list resourceslices; drivers may read only their own"
        yield Finding.failed(TOPIC, server.server, str(error), fix)
        return
    finally:
        server.close()
    yield of_counters(published, name, number)


def read(server: client.Client) -> Published:
    """Return the pools of all slices. Raises ApiError."""
    number, pools, counted = 0, set[tuple[str, str]](), set[tuple[str, str]]()
    query = {"limit": str(_PAGE)}
    while True:
        page = api_objects.FORMAT.decode(api_objects.ObjectList, server.request("GET", slices.PATH, query=query))
        for item in page.items:
            spec = item.get("spec") if isinstance(item, Mapping) else None
            pool = spec.get("pool") if isinstance(spec, Mapping) else None
            if not isinstance(spec, Mapping) or not isinstance(pool, Mapping):
                continue
            key = str(spec.get("driver")), str(pool.get("name"))
            number += 1
            pools.add(key)
            counted |= {key} if spec.get("sharedCounters") else set()
        query["continue"] = page.continue_
        if not query["continue"]:
            return Published(slices=number, pools=frozenset(pools), counted=frozenset(counted))


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
