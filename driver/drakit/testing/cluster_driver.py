"""A driver on a node of the local cluster, in this process: the real node with its sockets and its access to the API server."""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from drakit import families
from drakit.core import driver as drivers
from drakit.core import inventory
from drakit.kube import access_reviews, claims, client, events, slices, status
from drakit.node import background, engine, local_node, timing
from drakit.node import node as nodes
from drakit.node.publishing import cluster_publisher

SECONDS = 30.0


def missing_rule(made: drivers.Driver[Any], kubeconfig: pathlib.Path) -> str:
    """Return why the driver needs a right that the kubeconfig's account lacks, and the rule to add; empty if it has all."""
    with contextlib.closing(client.connect(kubeconfig, seconds=SECONDS)) as api:
        for right in families.rights(families.DriverFamily(lambda: made), None):
            verbs = ", ".join(verb for verb in right.verbs if right.needed and not access_reviews.may(api, right.attributes(verb)))
            if verbs:
                rule = f'{{apiGroups: ["{right.group}"], resources: [{right.resource}], verbs: [{verbs}]}}'
                return f"{right.why}; add a rule to its ClusterRole: {rule}"
    return ""


def publish(made: drivers.Driver[Any], pools: Sequence[inventory.ClusterPool], kubeconfig: pathlib.Path) -> None:
    """Publish the driver's cluster pools, as the command ``publish`` does."""
    with contextlib.closing(client.connect(kubeconfig, seconds=SECONDS)) as api:
        ticking = timing.SystemClock()
        store = slices.ApiSlices(api, driver=made.name, clock=ticking)
        publishing = cluster_publisher.ClusterPublisher(made.name, store=store, leads=lambda: True, clock=ticking)
        publishing.offer(pools)
        publishing.reconcile()


@contextlib.contextmanager
def running(
    made: drivers.Driver[Any],
    kubeconfig: pathlib.Path,
    *,
    node: str,
    registry: pathlib.Path,
    folders: local_node.Folders,
    rescan_seconds: float,
) -> Iterator[None]:
    """Serve the driver to the kubelet of a node inside the block."""
    with contextlib.closing(client.connect(kubeconfig, seconds=SECONDS)) as api:
        ticking = timing.SystemClock()
        statuses = status.ApiStatuses(api, status.Writer(driver=made.name, node=node, pool=node), ticking)
        outside = nodes.NodeDependencies(
            claim_source=claims.ApiClaims(api, seen=statuses.seen),
            slice_store=slices.ApiSlices(api, driver=made.name, node=node, clock=ticking),
            registry=registry,
            clock=ticking,
            rescan_seconds=rescan_seconds,
            api=background.ApiPorts(
                statuses=statuses,
                events=events.ApiEvents(api, component=made.name, host=node, recent=statuses.recent),
                claim_list=claims.ApiClaimList(api),
                bindings=claims.ApiBindings(api, driver=made.name, pool=node, clock=ticking),
            ),
        )
        spec = local_node.DriverSpec(driver_name=made.name, build=lambda _: made, identity=engine.NodeIdentity(pool=node, boot_id="boot-1"))
        served = nodes.Node(spec, folders, outside, node_name=node)
        try:
            served.start()
            yield
        finally:
            served.stop()
