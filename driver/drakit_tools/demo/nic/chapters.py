"""The chapters of the demo on a real interface. Each announces its step, runs it, and checks the kernel's state."""

import os
from collections.abc import Mapping

from drakit.cli import drawing
from drakit.cli.commands import show
from drakit.core import quantity
from drakit.inputs import documents
from drakit_cluster.objects import json_types
from drakit_nic import pod_interfaces
from drakit_nic.discovery import offers
from drakit_nic.shaping import htb
from drakit_tools.demo import stage as demo_stage
from drakit_tools.demo.nic import claims, figures, interface_state, pods, scene, traffic

COUNT = 7
_SAID = ("ifName", "mac", "mtu", "driver", "kind", "state", "carrier", "speed", "shaping")
_OVER, _UNDER = 0.02, 0.05
_TRIES = 3
_KILO = 1000
_CLAIMS = "claims.yaml"


def announce(act: scene.Scene) -> None:
    """Show the interface and what will change; change nothing yet."""
    stage, chosen = act.stage, act.figures
    stage.chapter(f"The state of {act.name}, and what the demo changes")
    stage.lines(*act.written.lines)
    stage.say("While the demo runs:")
    changes = [
        f"the root queueing discipline of {act.name} is replaced by an HTB of {figures.rate(chosen.speed)} bit/s with a class for each share",
        f"received traffic of {act.name} is redirected to a new interface drb{act.written.ifindex}, with classes of the same rates",
        f"the host's own traffic through {act.name} is limited to {figures.rate(chosen.reserve)} bit/s each way, forwarded traffic to 1M",
        "three pods (network namespaces) each get a macvlan child",
    ]
    stage.lines(*(f"- {change}" for change in changes))
    sent = "a few seconds of datagrams at the shares' rates, twice" if act.options.traffic else "none, without --traffic"
    stage.say(f"The name, MAC address, MTU, IP addresses and routes do not change. Frames sent on the network: {sent}.")
    stage.say(f"The demo restores everything at the end and at Ctrl-C. If it is killed, run: drakit demo --nic {act.name} --restore")
    if act.checked.used_by_host:
        stage.say(f"--yes-take-over is set: {act.name} {act.checked.used_by_host}.", style="yellow")


def remember(act: scene.Scene) -> None:
    """Save the state on disk before the first change."""
    act.place.write(act.written)
    act.stage.check(f"the interface's state is saved in {act.place.file}, before the first change", act.place.read(), act.written)
    act.stage.check("nothing has changed so far", interface_state.differences(act.written.lines, act.interface_state()), ())


def offer(act: scene.Scene) -> None:
    """Show the device as the driver would publish it."""
    stage = act.stage
    stage.chapter("The driver offers the interface as a device that many claims can share")
    act.driver.start()
    offered = act.driver.opened.offered.inventory
    stage.check("one device is offered", len(offered.devices), 1)
    device = offered.devices[0]
    stage.table(["ATTRIBUTE", "VALUE"], [(name, device.attributes[name]) for name in _SAID])
    bandwidth = device.capacity[offers.BANDWIDTH]
    stage.say(
        f"Device {device.name} has a bandwidth of {bandwidth.value}: its speed minus {figures.rate(act.figures.reserve)} for the host. "
        f"Shares come in steps of {figures.rate(act.figures.step)}; a claim without a request gets {figures.rate(act.figures.default)}."
    )
    stage.check("it is this interface", device.attributes[offers.IF_NAME], act.name)
    stage.check("it is shared by bandwidth", device.allow_multiple_allocations)
    room = act.figures.speed - act.figures.reserve
    stage.check(
        "its capacity is the speed minus the reserve, rounded down to a step",
        bandwidth.value,
        quantity.Quantity.of(room - room % act.figures.step),
    )


def ask(act: scene.Scene) -> None:
    """Allocate three claims, their requests rounded up."""
    stage, chosen = act.stage, act.figures
    stage.chapter("Three claims request bandwidth, and the allocator of a scheduler allocates them")
    stage.say("The local cluster's allocator decides, from the slice that the driver would publish (KEP-5075).")
    wanted = claims.documents(act.driver.family(), act.driver.opened.offered.inventory, chosen)
    given = claims.allocated(wanted)
    file = act.place.node / _CLAIMS
    file.write_text(documents.dump_all(given), "utf-8")
    act.refs.update({ref.name: ref for ref in act.driver.give(file)})
    results = {json_types.text(claim, "metadata", "name"): claims.result(claim) for claim in given}
    rows = [
        (name, figures.rate(amount) if amount else "(nothing)", _consumed(results[name]), json_types.text(results[name], "shareID"))
        for name, amount in chosen.asked.items()
    ]
    stage.table(["CLAIM", "REQUESTED", "CONSUMED", "SHARE ID"], rows)
    stage.check(
        "consumed capacity is rounded up to the step",
        {name: quantity.Quantity.parse(_consumed(result)).value for name, result in results.items()},
        dict(chosen.consumed),
    )
    stage.check(
        "each has its own share ID", len({json_types.text(result, "shareID") for result in results.values()} - {""}), len(chosen.asked)
    )


def prepare(act: scene.Scene) -> None:
    """Make the shares in the kernel, and check that the host's addresses and routes are unchanged."""
    stage, chosen = act.stage, act.figures
    stage.chapter("The driver prepares the claims: it makes classes in the kernel")
    for ref in act.refs.values():
        act.driver.prepare(ref)
    opened = act.driver.opened
    for bar in show.bars(opened.offered.inventory, tuple(opened.journal.entries())):
        stage.show([bar.device, *drawing.draw_bar(bar, stage.room)])
    stage.say(
        f"The classes of {act.name}; drb{act.written.ifindex} has the same for received traffic. See: tc -s class show dev {act.name}"
    )
    stage.table(["CLASS", "FOR", "RATE", "CEIL"], act.class_rows())
    stage.check("the root queueing discipline is the driver's HTB", _roots(act), [f"qdisc htb {htb.MAJOR:x}:"])
    _check_rates(act, chosen.speed)
    kept = interface_state.only(act.written.lines, "address", "route")
    stage.check(
        "the host's addresses and routes on it are unchanged", interface_state.only(act.interface_state(), "address", "route"), kept
    )


def attach(act: scene.Scene) -> None:
    """Attach an interface to each pod with the hook in its claim's CDI file."""
    stage = act.stage
    stage.chapter("The hook in the CDI file gives each pod its own interface")
    hook = pods.hooks(act.cdi_files(act.refs[figures.TRAINING]))[0]
    stage.say("A container runtime finds this hook in the claim's CDI file, and calls it before the container starts:")
    stage.lines(f"{hook.path} {' '.join(hook.args)}", f"within {hook.timeout} s, with the container's state on standard input")
    for name, ref in act.refs.items():
        pod = act.living[name] = pods.Pod(name)
        for attach_hook in pods.hooks(act.cdi_files(ref)):
            said = pods.call(attach_hook, pods.state(name, pod.sandbox, pod.pid))
            stage.check(f"the hook of pod {name} succeeds", (said.status, said.words), (0, ""))
    observed = {name: _observed(act, pod) for name, pod in act.living.items()}
    stage.table(
        ["POD", "INTERFACE", "MAC", "ADDRESSES"],
        [(name, interface.name, interface.mac, ", ".join(interface.addresses)) for name, interface in observed.items()],
    )
    stage.check(
        "each has its claim's address, and is up",
        {name: (interface.addresses, interface.up) for name, interface in observed.items()},
        {name: ((f"{claims.address(name, act.figures)}/{claims.PREFIX}",), True) for name in act.refs},
    )
    stage.check("the kernel assigns their frames to their shares' classes", _members(act), _expected_members(act))
    said = pods.call(hook, pods.state("main", "0" * 32, os.getpid()))
    stage.check("a pod on the host's network is refused", (said.status, "hostNetwork" in said.words), (1, True))
    _check_silence(act)


def lower(act: scene.Scene) -> None:
    """Lower the interface's speed while the shares are in use; the driver changes the classes in place."""
    stage, chosen = act.stage, act.figures
    stage.chapter("The speed is lowered while the pods use it: classes are changed in place")
    stage.say(
        f"The driver is restarted with a speed of {figures.rate(chosen.lowered)} for {act.name}. The pods keep running. Claim "
        f"{figures.METRICS} may borrow up to the speed of the interface, which is lower now."
    )
    before, observed = act.view(), {name: _observed(act, pod) for name, pod in act.living.items()}
    act.driver.stop()
    act.driver.start(chosen.lowered)
    stage.wait("the driver has changed the classes", lambda: act.view().rates(htb.ROOT)[0] == _whole(chosen.lowered))
    stage.table(["CLASS", "FOR", "RATE", "CEIL"], act.class_rows())
    _check_rates(act, chosen.lowered)
    after = act.view()
    for side, classes in before.sides.items():
        stage.check(f"{side}: the same classes, none removed or replaced", sorted(after.sides[side]), sorted(classes))
    grown = all(after.sent(minor).bytes >= before.sent(minor).bytes for minor in before.sides[scene.EGRESS])
    stage.check("their counters continue", grown)
    stage.check("the pods' interfaces are unchanged", {name: _observed(act, pod) for name, pod in act.living.items()}, observed)


def send(act: scene.Scene) -> None:
    """With --traffic, send from all pods as fast as possible, and check that each class sends its rate."""
    if not act.options.traffic:
        return
    stage = act.stage
    shares = act.shares()
    limits = {name: share.bandwidth for name, share in shares.items() if not share.ceil}
    senders = {name: act.living[name] for name in limits}
    stage.say(f"The pods of {' and '.join(limits)} send as fast as they can for {traffic.SECONDS:.0f} s. Their classes count the traffic:")
    measured = _sent(act, limits, senders)
    rows = [
        (name, figures.rate(limits[name]), figures.rate(round(sender.rate / _KILO) * _KILO), f"{100 * sender.rate / limits[name]:.1f}%")
        for name, sender in measured.items()
    ]
    stage.table(["CLAIM", "RATE", "SENT EACH SECOND", "OF RATE"], rows)
    for name, sender in measured.items():
        stage.check(f"{name}: no more than its rate", sender.rate <= (1 + _OVER) * limits[name])
        if sender.rate >= (1 - _UNDER) * limits[name] or sender.is_fair:
            stage.check(f"{name}: no less than its rate", sender.rate >= (1 - _UNDER) * limits[name])
        else:
            stage.say(
                f"{name}: the machine was too busy ({100 * sender.idle:.0f}% idle) to check that it gets its full rate.", style="yellow"
            )


def _sent(act: scene.Scene, limits: Mapping[str, int], senders: Mapping[str, pods.Pod]) -> Mapping[str, traffic.Measured]:
    """Measure the sent traffic; repeat a low result, because a busy machine may not serve the classes in time."""
    minors = {name: share.minor for name, share in act.shares().items() if name in limits}
    for _ in range(_TRIES):
        with traffic.flowing(senders, limits):
            measured = traffic.measure(act, minors)
        if any(sender.rate > (1 + _OVER) * limits[name] for name, sender in measured.items()):
            return measured
        if all(sender.rate >= (1 - _UNDER) * limits[name] for name, sender in measured.items()):
            return measured
    return measured


def _check_rates(act: scene.Scene, speed: int) -> None:
    """Check that the kernel's rates are those of the claims in both directions; a share that may borrow has the speed as ceil."""
    shares, view = act.shares(), act.view()
    rates = {name: view.rates(share.minor) for name, share in shares.items()}
    wanted = {name: (_whole(amount), _whole(amount if act.figures.asked[name] else speed)) for name, amount in act.figures.consumed.items()}
    act.stage.check("rate and ceil of every share are its claim's, in both directions", rates, wanted)
    act.stage.check("all shares together have the interface's speed", view.rates(htb.ROOT), (_whole(speed), _whole(speed)))
    act.stage.check("the host has its reserve", view.rates(htb.HOST)[0], _whole(act.figures.reserve))


def _check_silence(act: scene.Scene) -> None:
    """Check that no pod has sent a frame."""
    view = act.view()
    sent = {name: view.sent(share.minor).packets for name, share in act.shares().items()}
    act.stage.check("the pods have sent no frame", sent, dict.fromkeys(act.refs, 0))


def _roots(act: scene.Scene) -> list[str]:
    """Return the root queueing discipline of the interface, without its parent."""
    return [
        line.partition(" parent ")[0] for line in act.interface_state() if line.startswith("qdisc ") and line.endswith("parent ffffffff")
    ]


def _members(act: scene.Scene) -> set[tuple[str, int]]:
    """Return the shares and the namespaces that use them, read from the kernel."""
    own = {share.id for share in act.shares().values()}
    return {(member.share_id, member.cookie) for member in act.machine.members() if member.share_id in own}


def _expected_members(act: scene.Scene) -> set[tuple[str, int]]:
    return {(share.id, act.living[name].cookie()) for name, share in act.shares().items()}


def _observed(act: scene.Scene, pod: pods.Pod) -> pod_interfaces.ObservedInterface:
    interface = act.machine.observed(pod_interfaces.InterfaceRef(namespace=pod.namespace, name=claims.INTERFACE))
    if interface is None:
        raise demo_stage.DemoError(f"pod {pod.name} has no interface {claims.INTERFACE}")
    return interface


def _consumed(result: json_types.Object) -> str:
    return json_types.text(result, "consumedCapacity", offers.BANDWIDTH)


def _whole(rate: int) -> int:
    """Return a rate in whole bytes, as the kernel stores it."""
    return rate // 8 * 8
