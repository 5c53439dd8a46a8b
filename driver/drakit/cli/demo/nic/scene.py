"""The driver at work on one interface, in this process, with journal, locks, CDI files and attach socket as on any node; and how the kernel is read.

What is shown and checked is read by a port and sockets that the driver knows nothing of.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from drakit import settings as values
from drakit.cli import composition, options
from drakit.cli.commands import prepare
from drakit.cli.demo import stage
from drakit.cli.demo.nic import figures, ground, note, pods, portrait
from drakit.core import claim as claims
from drakit.core import ports
from drakit.devices.nic import kernel_port, port
from drakit.devices.nic.netlink import rtnetlink
from drakit.devices.nic.shaping import htb, ifb_links, tc_messages
from drakit.kube import file_claims
from drakit.node import local_node

NODE = "this-node"
EGRESS, INGRESS = "egress", "ingress"
Classes = Mapping[int, tc_messages.Class]


def family(place: note.Place, interface: str, chosen: figures.Figures | None = None, *, speed: int = 0) -> composition.Family:
    """The NIC driver for one interface, with everything it keeps in the place; without figures for taking away only."""
    match = ground.pattern(interface)
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
    (found,) = composition.families(values.load(given, environ={}), only=("nic",))
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """The classes of both directions, by number, as the kernel gives them."""

    sides: Mapping[str, Classes]

    def rates(self, minor: int) -> tuple[int, int]:
        """Rate and ceil of a class, the same in both directions; (0, 0) where a direction lacks it or says something else."""
        found = {(side[minor].spec.rate, side[minor].spec.ceil) if minor in side else (0, 0) for side in self.sides.values()}
        return found.pop() if len(found) == 1 else (0, 0)

    def sent(self, minor: int) -> port.Counters:
        """What a class counted of what leaves by the interface."""
        return self.sides[EGRESS][minor].counters


class Driver:
    """The driver, which can be stopped and started with another speed; what it made in the kernel stays meanwhile."""

    def __init__(self, place: note.Place, interface: str, chosen: figures.Figures) -> None:
        self._place, self._interface, self._figures = place, interface, chosen
        self._source: ports.ClaimSource = prepare.Nowhere()
        self._opened: local_node.LocalNode | None = None

    @property
    def opened(self) -> local_node.LocalNode:
        """The driver with its journal, while it is at work."""
        if self._opened is None:
            raise stage.DemoError("the driver is not at work")
        return self._opened

    def family(self, speed: int = 0) -> composition.Family:
        """The driver for a speed, that of the interface if none is given."""
        return family(self._place, self._interface, self._figures, speed=speed)

    def start(self, speed: int = 0) -> None:
        """Open, recover, discover and serve. Raises DrakitError."""
        post = self.family(speed)
        self._opened = local_node.LocalNode.open(post.spec, post.folders, self)
        self._opened.offered.refresh()
        self._opened.author.start(self._opened.context)

    def stop(self) -> None:
        """Serve no more. Twice is fine."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.author.stop()
            opened.close()

    def give(self, file: pathlib.Path) -> Sequence[claims.ClaimRef]:
        """From now on, claims are those of a file; what they are called."""
        self._source = source = file_claims.FileClaims(file)
        return source.refs

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """A claim, as the API server would give it."""
        return self._source.fetch(ref)

    def prepare(self, ref: claims.ClaimRef) -> None:
        """Prepare a claim as the kubelet asks for it; raises DemoError."""
        answer = self.opened.engine.prepare([ref], prepare.Present())[ref.uid]
        if answer.error:
            raise stage.DemoError(f"claim {ref} was not prepared: {answer.error}")

    def unprepare(self, ref: claims.ClaimRef) -> None:
        """Give a claim back as the kubelet asks for it; raises DemoError."""
        error = self.opened.engine.unprepare([ref], prepare.Present())[ref.uid]
        if error:
            raise stage.DemoError(f"claim {ref} was not given back: {error}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What the chapters act on. ``refs`` are the claims and ``living`` their pods, by the claim's name, from the chapter on that makes them."""

    stage: stage.Stage
    wish: ground.Wish
    ground: ground.Ground
    written: note.Note
    place: note.Place
    machine: kernel_port.KernelPort
    driver: Driver
    refs: dict[str, claims.ClaimRef] = dataclasses.field(default_factory=dict)
    living: dict[str, pods.Pod] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The interface."""
        return self.wish.interface

    @property
    def figures(self) -> figures.Figures:
        """What is asked of it."""
        return self.ground.figures

    def portrait(self) -> portrait.Lines:
        """What the kernel says of the interface now."""
        with rtnetlink.Socket.open() as sock:
            return portrait.read(sock, self.written.ifindex)

    def shares(self) -> dict[str, port.Share]:
        """The shares that are installed, by the name of their claim."""
        found = {share.id: share for share in self.machine.shares() if share.ifindex == self.written.ifindex}
        return {name: found[one] for name, one in self._share_ids().items() if one in found}

    def shares_left(self) -> int:
        """How many shares the interface has, whoever made them."""
        return sum(share.ifindex == self.written.ifindex for share in self.machine.shares())

    def view(self) -> View:
        """The classes in the kernel."""
        with rtnetlink.Socket.open() as sock:
            ifb = ifb_links.find(sock, self.written.ifindex)
            sides = {EGRESS: self.written.ifindex, INGRESS: ifb.ifindex if ifb else 0}
            return View(sides={side: tc_messages.classes(sock, ifindex) if ifindex else {} for side, ifindex in sides.items()})

    def cdi_files(self, ref: claims.ClaimRef) -> tuple[pathlib.Path, ...]:
        """The CDI files of a claim."""
        return tuple(sorted(self.driver.family().folders.cdi.glob(f"*{ref.uid}*.json")))

    def class_rows(self) -> list[tuple[str, ...]]:
        """The classes of what leaves, as ``tc class show`` lists them, with whose they are."""
        named = {
            htb.ROOT: "all",
            htb.HOST: "the host itself",
            htb.STRAY: "frames of no known sender",
            htb.DEFAULT: "the rest",
        }
        named |= {share.minor: f"claim {name}" for name, share in self.shares().items()}
        found = self.view().sides[EGRESS]
        return [
            (htb.text(minor), named.get(minor, "a pod"), figures.rate(item.spec.rate), figures.rate(item.spec.ceil))
            for minor, item in sorted(found.items())
        ]

    def _share_ids(self) -> dict[str, str]:
        entries = {entry.claim.uid: entry for entry in self.driver.opened.journal.entries()}
        return {name: str(entries[ref.uid].grants[0].share_id) for name, ref in self.refs.items() if ref.uid in entries}


def boot_id() -> str:
    """The id of this boot."""
    return composition.BOOT_ID.read_text().strip()
