"""The page says what each pod got and what each namespace has, in devices, memory and bandwidth, and prints both in ``drakit top``."""

import pathlib
import re
from typing import Any

from drakit.core import capacity as capacities
from drakit.core import device as devices
from drakit.core import inventory, quantity
from drakit_tools.dashboard import cluster_state, granted, model, pool_devices, server, text, unused
from fakes import command_line, real_clock
from fakes import simulated_fleets as fleets

PAGE_FILES = pathlib.Path(server.__file__).parent
SHARE = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


def published() -> list[Any]:
    """The slices of a node with two A100 and two NICs."""
    return [
        {"kind": "ResourceSlice", **entry, "metadata": {"name": f"s{number}", "uid": f"s{number}", "resourceVersion": "1"}}
        for number, entry in enumerate(fleets.slices_of("dgx-a100-40gb-2gpu", "node-1"))
    ]


def claim(number: int, label: str, *results: Any, pod: str = "p") -> Any:
    namespace, _, name = label.partition("/")
    return {
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"6cf8db2d-06c0-4d70-9a51-e59b25b2c16{number}",
            "creationTimestamp": "2026-11-29T08:00:00Z",
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]}},
        "status": {"allocation": {"devices": {"results": list(results)}}, "reservedFor": [{"resource": "pods", "name": pod, "uid": "1"}]},
    }


def gpu(device: str, **more: Any) -> Any:
    return {"request": "gpu", "driver": fleets.GPU, "pool": "node-1", "device": device, **more}


def bandwidth(amount: str) -> Any:
    device = "pci-0000-0c-00-0"
    return {
        "request": "net",
        "driver": fleets.NIC,
        "pool": "node-1",
        "device": device,
        "shareID": SHARE,
        "consumedCapacity": {"bandwidth": amount},
    }


def state(*claims: Any, pods: tuple[Any, ...] = ()) -> model.State:
    seen = cluster_state.Reader("cluster").state(cluster_state.Listing(slices=published(), claims=claims, pods=pods))
    assert seen.problem == ""
    return seen


TRAIN = claim(1, "team-a/train-gpu", gpu("gpu-0-mig-3g20gb-9-4"), gpu("gpu-0-mig-1g5gb-19-0"), bandwidth("25G"), pod="train-0")
WHOLE = claim(2, "team-b/large", gpu("gpu-1"), pod="large-0")


def test_a_pods_claim_has_each_device_with_profile_memory_share_and_node() -> None:
    (row, _) = state(TRAIN, WHOLE).claims
    assert (row.claim, row.pods, row.state, row.node) == ("team-a/train-gpu", ("team-a/train-0",), "allocated", "node-1")
    large, small, net = row.devices
    assert (large.device, large.kind, large.request, large.driver) == ("gpu-0-mig-3g20gb-9-4", "3g.20gb", "gpu", fleets.GPU)
    assert 19 < large.memory / 2**30 < 20
    assert (small.kind, small.bandwidth, small.share) == ("1g.5gb", 0, "")
    assert (net.device, net.kind, net.bandwidth, net.share, net.memory) == ("pci-0000-0c-00-0", "eth1", 25 * 10**9, SHARE, 0)


def test_a_device_is_prepared_or_not_as_its_driver_says_and_unknown_without_a_word() -> None:
    def prepared(**entry: Any) -> bool | None:
        asked = claim(1, "team-a/x", bandwidth("1G"))
        asked["status"]["devices"] = [{"driver": fleets.NIC, "pool": "node-1", "device": "pci-0000-0c-00-0", "shareID": SHARE, **entry}]
        ((device,),) = (row.devices for row in state(asked).claims)
        return device.prepared

    assert prepared(conditions=[{"type": "Ready", "status": "True"}]) is True
    assert prepared(conditions=[{"type": "Ready", "status": "False", "reason": "Config"}]) is False
    assert prepared(conditions=[{"type": "Attached", "status": "True"}]) is None
    assert prepared(shareID="11111111-0000-4000-8000-000000000000", conditions=[{"type": "Ready", "status": "True"}]) is None


def test_a_nic_has_its_name_in_the_pod_on_the_page_and_in_top() -> None:
    asked = claim(1, "team-b/net5", bandwidth("5G"))
    entry = {"driver": fleets.NIC, "pool": "node-1", "device": "pci-0000-0c-00-0", "shareID": SHARE}
    asked["status"]["devices"] = [{**entry, "networkData": {"interfaceName": "fast0", "ips": ["10.0.0.5/24"]}}]
    seen = state(asked)
    ((device,),) = (row.devices for row in seen.claims)
    assert (device.kind, device.interface) == ("eth1", "fast0")
    lines = [line.text for line in text.lines(seen, now=real_clock.RealClock().now(), width=None)]
    assert any(line.startswith("    bandwidth 5G  fast0 in the pod  pod team-b/p  claim team-b/net5") for line in lines)
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert script.count("inPod(device.interface)") == 1
    assert script.count("inPod(share.interface)") == 2
    ((unknown,),) = (row.devices for row in state(claim(1, "team-b/net5", bandwidth("5G"))).claims)
    assert unknown.interface == ""


def test_a_device_that_is_not_published_any_more_is_named_without_its_kind() -> None:
    (row,) = state(claim(1, "team-a/old", gpu("gpu-9"))).claims
    assert [(device.device, device.kind, device.memory) for device in row.devices] == [("gpu-9", "", 0)]
    gone = bandwidth("5G") | {"device": "pci-9"}
    (total,) = state(TRAIN, claim(3, "team-a/old", gpu("gpu-9"), gone)).namespaces
    assert (total.devices, total.bandwidth, total.not_counted) == ({"1g.5gb": 1, "3g.20gb": 1}, 25 * 10**9, 2)
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert "`${devicesAndShares(row.not_counted)} not counted`" in script
    assert "[...pool.others, ...pool.unpublished].flatMap((device) => device.uses)" in script, "the card counts their pods and claims"


def test_a_namespace_has_its_devices_memory_bandwidth_and_waiting_pods() -> None:
    waits = {
        "kind": "Pod",
        "metadata": {"namespace": "team-c", "name": "late", "uid": "p"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "none"}], "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    }
    whole, train, late = state(TRAIN, WHOLE, pods=(waits,)).namespaces
    assert (whole.name, whole.devices, whole.claims, whole.waiting) == ("team-b", {"gpu": 1}, 1, 0)
    assert (train.name, train.devices, train.bandwidth) == ("team-a", {"1g.5gb": 1, "3g.20gb": 1}, 25 * 10**9)
    assert 24 < train.memory / 2**30 < 25
    assert whole.memory > train.memory, "the namespace with the most memory is first"
    assert (late.name, late.claims, late.waiting) == ("team-c", 0, 1)


def test_a_namespace_has_the_memory_of_its_share_and_nothing_by_admin_access() -> None:
    def row(name: str, device: model.Granted) -> model.ClaimRow:
        return model.ClaimRow(claim=f"team-a/{name}", uid=name, state="allocated", devices=(device,))

    share = model.Granted(device="gpu-0-shared", driver=fleets.GPU, kind="gpu shared", share=SHARE, memory=10 * 2**30, prepared=None)
    watched = model.Granted(device="gpu-0", driver=fleets.GPU, kind="gpu", memory=40 * 2**30, admin=True, prepared=None)
    (total,) = granted.namespaces([row("a", share), row("b", watched)], ())
    assert (total.devices, total.memory, total.claims) == ({"gpu share": 1}, 10 * 2**30, 2)


def sharing(*amounts: str, shares: str = "1", notes: tuple[str, ...] = ()) -> model.Node:
    """A node with one GPU of 40 GiB and eight shares, of which claims have an amount of memory and some shares each."""
    place: dict[str, devices.AttributeValue] = {
        "type": "shared-gpu",
        "productName": "A100",
        "uuid": "GPU-1",
        "parentUUID": "GPU-1",
        "placementStart": 0,
        "placementSize": 8,
    }
    capacity = {name: capacities.Capacity(value=quantity.Quantity.parse(value)) for name, value in (("memory", "40Gi"), ("shares", "8"))}
    device = devices.Device(name="gpu-0-shared", attributes=place, capacity=capacity, allow_multiple_allocations=True)
    held = [
        model.Holding(
            device=device.name,
            claim=f"team-a/{at}",
            uid=str(at),
            share=str(at),
            consumed={"memory": quantity.Quantity.parse(amount), "shares": quantity.Quantity.parse(shares)},
        )
        for at, amount in enumerate(amounts)
    ]
    filled = pool_devices.pool(model.Pool(driver=fleets.GPU, name="node-1"), inventory.Inventory(devices=(device,)), held, {})
    return model.Node(name="node-1", pools=(unused.closed(filled) if notes else filled,), notes=notes)


def shared_gpu(node: model.Node) -> model.Gpu:
    ((gpu,),) = (pool.gpus for pool in node.pools)
    return gpu


def printed(node: model.Node) -> list[str]:
    seen = model.State(title="cluster", nodes=(node,), free=unused.free([node]))
    return [line.text for line in text.lines(seen, now=real_clock.RealClock().now(), width=None)]


def test_a_shared_gpu_says_how_much_memory_is_left_to_share() -> None:
    assert shared_gpu(sharing("10Gi", "20Gi")).spans[0].left == 10 * 2**30
    assert shared_gpu(sharing("10Gi", "30Gi")).spans[0].left == 0


def test_no_memory_is_left_to_share_where_claims_have_all_shares() -> None:
    full = sharing("8Gi", shares="8")
    assert (shared_gpu(full).spans[0].left, shared_gpu(full).has_room) == (0, False)
    assert "    nothing more fits" in printed(full)


def test_a_gpu_with_memory_left_to_share_has_room_and_still_fits() -> None:
    some = sharing("10Gi")
    assert (shared_gpu(some).together, shared_gpu(some).has_room) == ((), True)
    (free,) = unused.free([some])
    assert (free.unused, free.sets, free.left) == (0, (), 30 * 2**30)
    assert "  A100: 0 of 1 unused: 30.0 GiB left to share" in printed(some)
    assert shared_gpu(sharing()).has_room
    cordoned = sharing("10Gi", notes=("cordoned",))
    assert (shared_gpu(cordoned).has_room, unused.free([cordoned])[0].left) == (False, 0)


def test_a_gpu_that_claims_share_is_called_shared_once() -> None:
    assert shared_gpu(sharing("10Gi")).spans[0].kind == "gpu shared"
    assert "    A gpu shared  claim team-a/0" in printed(sharing("10Gi"))


def test_top_prints_the_first_namespaces_and_how_many_more_there_are() -> None:
    seen = state(TRAIN, WHOLE)
    lines = [line.text for line in text.lines(seen, now=real_clock.RealClock().now(), width=None)]
    first = lines.index("NAMESPACES")
    assert lines[first + 1 : first + 3] == [
        "  team-b:  1 x gpu  memory 39.2 GiB",
        "  team-a:  1 x 1g.5gb, 1 x 3g.20gb  memory 24.2 GiB  bandwidth 25G",
    ]
    many = [claim(number, f"team-{number}/x", gpu(f"gpu-0-mig-1g5gb-19-{number}")) for number in range(4)]
    screen = [line.text for line in text.lines(state(*many), now=real_clock.RealClock().now(), width=80, height=24)]
    assert "  ... and 1 more (-o json has all)" in screen


def test_a_closed_node_names_what_has_to_move_and_a_command_that_exists(shell: command_line.CommandLine) -> None:
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    (command,) = re.findall(r"`drakit (plan --live --drain) \$\{node\.name\}`", script)
    assert command.split()[-1] in shell.run("plan", "--help").out
