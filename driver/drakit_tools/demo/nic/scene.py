"""The driver of one interface in this process, with journal, locks, CDI files and attach socket, and the readers of the kernel's state.

The demo reads what it shows and checks through its own port and sockets, not through the driver.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from drakit import settings as values
from drakit.cli import composition, options, views
from drakit.cli.commands import prepare
from drakit.core import claim as claims
from drakit.core import ports
from drakit.kube import file_claims
from drakit.node import background, local_node, timing
from drakit_nic import kernel_port, port
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import htb, ifb_links, tc_messages
from drakit_tools.demo import stage
from drakit_tools.demo.nic import eligibility_check, figures, interface_state, pods, saved_state

NODE = "this-node"
EGRESS, INGRESS = "egress", "ingress"
Classes = Mapping[int, tc_messages.Class]


def family(place: saved_state.StateFolder, interface: str, chosen: figures.Figures | None = None, *, speed: int = 0) -> composition.Family:
    """Return the NIC driver of one interface, with its files in the state folder; without ``chosen`` it can only remove shares."""
    match = eligibility_check.pattern(interface)
    given: dict[str, object] = {"node.name": NODE, "nic.include": [match], "nic.take_over": [match], **options.places(place.node)}
    if chosen is not None:
        rates = {
            "speed": speed or chosen.speed,
            "reserve": chosen.reserve,
            "default": chosen.default,
            "min": chosen.step,
            "step": chosen.step,
        }
        given["nic.rules"] = [{"match": match, **{name: figures.rate(amount) for name, amount in rates.items()}}]
    (nic_family,) = composition.families(values.load(given, environ={}), only=("nic",))
    return nic_family


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """The classes of both directions by number, as the kernel reports them."""

    sides: Mapping[str, Classes]

    def rates(self, minor: int) -> tuple[int, int]:
        """Return rate and ceil of a class; (0, 0) if a direction lacks the class or the two directions differ."""
        pairs = {(side[minor].spec.rate, side[minor].spec.ceil) if minor in side else (0, 0) for side in self.sides.values()}
        return pairs.pop() if len(pairs) == 1 else (0, 0)

    def sent(self, minor: int) -> port.Counters:
        """Return the egress counters of a class."""
        return self.sides[EGRESS][minor].counters


class Driver:
    """The driver. It can be stopped and started with another speed; its kernel objects stay in between."""

    def __init__(self, place: saved_state.StateFolder, interface: str, chosen: figures.Figures) -> None:
        self._place, self._interface, self._figures = place, interface, chosen
        self._source: ports.ClaimSource = views.Nowhere()
        self._opened: local_node.LocalNode | None = None
        self._watch = contextlib.ExitStack()

    @property
    def opened(self) -> local_node.LocalNode:
        """Return the running driver with its journal."""
        if self._opened is None:
            raise stage.DemoError("the driver is not running")
        return self._opened

    def family(self, speed: int = 0) -> composition.Family:
        """Return the driver for a speed, by default the interface's."""
        return family(self._place, self._interface, self._figures, speed=speed)

    def start(self, speed: int = 0) -> None:
        """Open, recover, discover and serve. Raises DrakitError."""
        post = self.family(speed)
        self._opened = local_node.LocalNode.open(post.spec, post.folders, self)
        self._opened.offered.refresh()
        self._watch.enter_context(background.watching(self._opened.author, self._opened.context, timing.SYSTEM))

    def stop(self) -> None:
        """Stop serving. Safe to call twice."""
        opened, self._opened = self._opened, None
        if opened is not None:
            self._watch.close()
            opened.close()

    def give(self, file: pathlib.Path) -> Sequence[claims.ClaimRef]:
        """Read claims from this file from now on; return their references."""
        self._source = source = file_claims.FileClaims(file)
        return source.refs

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Return a claim as the API server would."""
        return self._source.fetch(ref)

    def prepare(self, ref: claims.ClaimRef) -> None:
        """Prepare a claim as the kubelet asks for it; raises DemoError."""
        answer = self.opened.engine.prepare([ref], prepare.Present())[ref.uid]
        if answer.error:
            raise stage.DemoError(f"claim {ref} was not prepared: {answer.error}")

    def unprepare(self, ref: claims.ClaimRef) -> None:
        """Unprepare a claim as the kubelet asks for it; raises DemoError."""
        error = self.opened.engine.unprepare([ref], prepare.Present())[ref.uid]
        if error:
            raise stage.DemoError(f"claim {ref} was not unprepared: {error}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """The objects that the chapters use. ``refs`` has the claims and ``living`` their pods by the claim's name, once a chapter has made them."""

    stage: stage.Stage
    options: eligibility_check.DemoOptions
    checked: eligibility_check.CheckedInterface
    written: saved_state.SavedState
    place: saved_state.StateFolder
    machine: kernel_port.KernelPort
    driver: Driver
    refs: dict[str, claims.ClaimRef] = dataclasses.field(default_factory=dict)
    living: dict[str, pods.Pod] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the interface."""
        return self.options.interface

    @property
    def figures(self) -> figures.Figures:
        """Return the rates for the interface."""
        return self.checked.figures

    def interface_state(self) -> interface_state.Lines:
        """Read the interface's current state from the kernel."""
        with rtnetlink.Socket.open() as sock:
            return interface_state.read(sock, self.written.ifindex)

    def shares(self) -> dict[str, port.Share]:
        """Return the installed shares by the name of their claim."""
        by_id = {share.id: share for share in self.machine.shares() if share.ifindex == self.written.ifindex}
        return {name: by_id[share_id] for name, share_id in self._share_ids().items() if share_id in by_id}

    def shares_left(self) -> int:
        """Return the number of shares on the interface."""
        return sum(share.ifindex == self.written.ifindex for share in self.machine.shares())

    def view(self) -> View:
        """Return the classes in the kernel."""
        with rtnetlink.Socket.open() as sock:
            ifb = ifb_links.find(sock, self.written.ifindex)
            sides = {EGRESS: self.written.ifindex, INGRESS: ifb.ifindex if ifb else 0}
            return View(sides={side: tc_messages.classes(sock, ifindex) if ifindex else {} for side, ifindex in sides.items()})

    def cdi_files(self, ref: claims.ClaimRef) -> tuple[pathlib.Path, ...]:
        """Return the CDI files of a claim."""
        return tuple(sorted(self.driver.family().folders.cdi.glob(f"*{ref.uid}*.json")))

    def class_rows(self) -> list[tuple[str, ...]]:
        """Return the egress classes as ``tc class show`` lists them, each with its owner."""
        named = {
            htb.ROOT: "all",
            htb.HOST: "the host itself",
            htb.STRAY: "frames of unknown senders",
            htb.DEFAULT: "the rest",
        }
        named |= {share.minor: f"claim {name}" for name, share in self.shares().items()}
        classes = self.view().sides[EGRESS]
        return [
            (htb.text(minor), named.get(minor, "a pod"), figures.rate(shaped.spec.rate), figures.rate(shaped.spec.ceil))
            for minor, shaped in sorted(classes.items())
        ]

    def _share_ids(self) -> dict[str, str]:
        entries = {entry.claim.uid: entry for entry in self.driver.opened.journal.entries()}
        return {name: str(entries[ref.uid].grants[0].share_id) for name, ref in self.refs.items() if ref.uid in entries}


def boot_id() -> str:
    """Return the ID of this boot."""
    return composition.BOOT_ID.read_text().strip()
