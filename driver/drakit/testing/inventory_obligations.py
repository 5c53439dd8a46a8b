"""What a driver owes drakit in its inventory, before any claim; see ``drakit.testing.obligations``."""

from collections.abc import Iterator

from drakit.core import advanced, inventory
from drakit.core.slices import paging, resource_slice
from drakit.testing import bench as benches
from drakit.testing import node as nodes
from drakit.testing import report as reports


def offers_something(bench: benches.Bench) -> None:
    """Require a device, and equal answers of two calls."""
    with bench.node() as node:
        benches.require(node.all_devices, "discover() offers no device; give the mock hardware some")
        benches.require(node.driver.discover() == node.driver.discover(), "two calls of discover() differ though nothing changed")
        pools = advanced.cluster_pools(node.driver)
        benches.require(pools == advanced.cluster_pools(node.driver), "two calls of cluster_pools() differ though nothing changed")


def fits_the_api(bench: benches.Bench) -> None:
    """Require that slices of every form can hold what is offered."""
    with bench.node() as node:
        for offered in pools(node):
            for form in (resource_slice.Form.FLAT, resource_slice.Form.MIXINS):
                paging.paginate(
                    offered if form is resource_slice.Form.MIXINS else offered.flat(), form=form, layout=resource_slice.Layout.APART
                )


def consumes_what_counters_have(bench: benches.Bench) -> None:
    """Require that no device consumes more of a counter than its counter set has: it would never be allocated."""
    with bench.node() as node:
        offers = [offered.flat() for offered in pools(node)]
    if not any(device.consumes for offered in offers for device in offered.devices):
        raise reports.NotApplicableError("no device consumes counters")
    for offered in offers:
        sets = {counter_set.name: counter_set.counters for counter_set in offered.counter_sets}
        for device in offered.devices:
            for part in device.consumes:
                for counter, consumed in part.counters.items():
                    total = sets[part.counter_set][counter]
                    benches.require(
                        consumed <= total,
                        f"{device.name} consumes {consumed} of counter {counter}, and counter set {part.counter_set} has {total}: "
                        "no claim can ever get the device",
                    )


def pools(node: nodes.Node) -> Iterator[inventory.Inventory]:
    """Yield the inventory of each pool, of the node and of the cluster."""
    yield from inventory.by_pool(node.driver.discover(), nodes.POOL).values()
    for pool in advanced.cluster_pools(node.driver):
        yield pool.inventory
