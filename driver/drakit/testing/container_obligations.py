"""What a driver owes where its devices meet: shares of one device, and devices of one container; see ``drakit.testing.obligations``."""

from collections.abc import Iterator, Sequence

from drakit.testing import bench as benches
from drakit.testing import inventory_obligations, isolation_obligations
from drakit.testing import node as nodes
from drakit.testing import report as reports


def shares_one_device(bench: benches.Bench) -> None:
    """Require that the end of one share leaves another as it is."""
    with bench.node() as node:
        for name in _shareable(bench, node):
            one, two = bench.claim(node, name), bench.claim(node, name)
            node.prepare(one)
            before = node.prepare(two)
            node.unprepare(one)
            benches.require(node.prepare(two) == before, f"{name}: the end of one share changed another")
            node.unprepare(two)


def shares_meet_in_a_container(bench: benches.Bench) -> None:
    """Require that two shares of one device set no variable to two values."""
    with bench.node() as node:
        for name in _shareable(bench, node):
            try:
                first, second = _both(bench, node, name, name)
            except nodes.RefusedError as error:
                raise reports.NotApplicableError(f"{name}: two shares cannot be prepared at once: {error}") from error
            for variable in _ambiguous(first, second):
                values = f"{first.env[variable]!r} for one share and {second.env[variable]!r} for the other"
                raise AssertionError(
                    f"{name}: {variable} is {values}, and a container with both shares has only one value; put grant.share_id into the name"
                )


def devices_meet_in_a_container(bench: benches.Bench) -> None:
    """Require that two devices set no variable to two values."""
    with bench.node() as node:
        tried = False
        for one, two in _pairs(bench, node):
            try:
                first, second = _both(bench, node, one, two)
            except nodes.RefusedError:
                continue
            tried = True
            for variable in _ambiguous(first, second):
                values = f"{first.env[variable]!r} for {one} and {second.env[variable]!r} for {two}"
                raise AssertionError(
                    f"{variable} is {values}, and a container with both devices has only one value; put the device's name into the variable's"
                )
    if not tried:
        raise reports.NotApplicableError("no two devices can be prepared at once")


def _both(bench: benches.Bench, node: nodes.Node, one: str, two: str) -> tuple[nodes.ContainerView, nodes.ContainerView]:
    """What containers get of two claims that are prepared at once; raises nodes.RefusedError."""
    refs = bench.claim(node, one), bench.claim(node, two)
    try:
        return node.prepare(refs[0]), node.prepare(refs[1])
    finally:
        for ref in refs:
            node.unprepare(ref)


def _ambiguous(first: nodes.ContainerView, second: nodes.ContainerView) -> Sequence[str]:
    return sorted(variable for variable in first.env.keys() & second.env.keys() if first.env[variable] != second.env[variable])


def _shareable(bench: benches.Bench, node: nodes.Node) -> Sequence[str]:
    """The devices of which two claims can have shares; raises reports.NotApplicableError where there is none."""
    offered = node.all_devices
    shared = [group[0] for group in bench.groups if len(group) == 1 and offered[group[0]].allow_multiple_allocations]
    if not shared:
        raise reports.NotApplicableError("no device allows multiple allocations")
    fitting = [name for name in shared if isolation_obligations.takes(offered[name], bench.consumed, times=2)]
    if not fitting:
        amounts = dict(bench.consumed) or "the default amounts"
        raise reports.NotApplicableError(f"two claims of {amounts} do not fit on {shared[0]}; reduce consumed")
    return fitting


def _pairs(bench: benches.Bench, node: nodes.Node) -> Iterator[tuple[str, str]]:
    """Each device to try, with another that fits beside it by counters: one of its own kind where there is one."""
    single = [group[0] for group in bench.groups if len(group) == 1]
    for pool in inventory_obligations.pools(node):
        offered = pool.flat()
        by_name = offered.by_name()
        for device in (by_name[name] for name in single if name in by_name):
            beside = [other for other in offered.devices if other is not device and isolation_obligations.fit(offered, device, other)]
            alike = [other for other in beside if other.attributes.keys() == device.attributes.keys()]
            if other := next(iter((*alike, *beside)), None):
                yield device.name, other.name
