"""A node whose disk is recorded while its driver prepares and unprepares claims, and the same node after a power cut.

The hardware is outside of the disk, as a switch is: what the driver makes there is permanent at once, and a mark in the record. The hardware of a
volatile driver ends with the power. What the kubelet asks and is answered are marks too.
"""

import contextlib
import dataclasses
import json
import pathlib
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from drakit.core import claim as claims
from drakit.core import names, quantity
from drakit.node import engine, local_node
from fakes import author, claim_source, crash_node

HALVES = {f"chip-{chip}-{side}": {(chip, side)} for chip in (0, 1) for side in ("left", "right")}
PARTS = {**HALVES, **{f"chip-{chip}": {(chip, "left"), (chip, "right")} for chip in (0, 1)}}
SHARES_MAX = 5
FLUSH_CHANCE = 0.1
CALLER = crash_node.Waiting()


class DurableDriver(author.FakeDriver):
    """The hardware outlives the kernel."""


class VolatileDriver(author.FakeDriver):
    """The hardware ends with the kernel."""

    volatile = True


def claim_of(uid: str, *devices: str) -> claims.Claim:
    """An allocated claim; the pipe is a share, which has the claim's UID as its id."""
    results = tuple(
        claims.AllocationResult(
            request=f"r{index}",
            driver=author.FakeDriver.name,
            pool=crash_node.POOL,
            device=device,
            share_id=names.ShareId(uid) if device == "pipe" else None,
            consumed_capacity={"bandwidth": quantity.Quantity.parse("1G")} if device == "pipe" else {},
        )
        for index, device in enumerate(devices)
    )
    return claims.Claim(ref=claims.ClaimRef(uid=names.ClaimUid(uid), namespace="default", name=f"claim-{uid}"), results=results)


@dataclasses.dataclass(kw_only=True)
class World:
    """What is on the node's disk (``folder``), its hardware, and the claims of the API server."""

    folder: pathlib.Path
    kind: type[author.FakeDriver]
    hardware: author.Hardware = dataclasses.field(default_factory=author.Hardware)
    source: claim_source.FakeClaimSource = dataclasses.field(default_factory=claim_source.FakeClaimSource)

    @contextlib.contextmanager
    def driver(self, boot: str) -> Iterator[local_node.LocalNode]:
        """The driver before it has recovered."""
        spec = local_node.DriverSpec(
            driver_name=self.kind.name,
            build=lambda _: self.kind(self.hardware),
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=boot),
        )
        folders = local_node.Folders(home=self.folder / "home", cdi=self.folder / "cdi")
        with local_node.LocalNode(spec, folders, self.source) as local:
            local.offered.refresh()
            yield local


def marking(mark: Callable[[str], None]) -> Callable[[str], None]:
    """A step of the hardware that marks each change after it is made."""
    return lambda what: mark(what.removeprefix("after ").replace(" ", ":")) if what.startswith("after ") else None


class Kubelet:
    """Prepares and unprepares claims in two threads, one for the chips and one for the pipe, and marks each call and each answer."""

    def __init__(self, world: World, mark: Callable[[str], None], flush: Callable[[], None], seed: int) -> None:
        self._world, self._mark, self._flush = world, mark, flush
        self._chances = (random.Random(seed), random.Random(seed + 1))
        self._live: tuple[list[claims.Claim], list[claims.Claim]] = ([], [])

    def serve(self, local: local_node.LocalNode, calls: int) -> None:
        """One life of the driver, with this many calls for each thread."""
        errors = list[BaseException]()

        def work(thread: int) -> None:
            try:
                for _ in range(calls):
                    self._call(local, self._chances[thread], self._live[thread], [self._chips, self._pipe][thread])
            except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _call(
        self,
        local: local_node.LocalNode,
        chance: random.Random,
        live: list[claims.Claim],
        choose: Callable[[random.Random, Sequence[claims.Claim]], Sequence[str]],
    ) -> None:
        devices = choose(chance, live)
        if devices and (not live or chance.random() < 0.6):
            wanted = claim_of(str(uuid.uuid4()), *devices)
            self._world.source.put(wanted)
            self._mark(f"preparing:{wanted.ref.uid}:{','.join(devices)}")
            answer = local.engine.prepare([wanted.ref], CALLER)[wanted.ref.uid].error
            self._mark(f"prepared:{wanted.ref.uid}")
            live.append(wanted)
        else:
            ended = live.pop(chance.randrange(len(live)))
            self._mark(f"unpreparing:{ended.ref.uid}")
            answer = local.engine.unprepare([ended.ref], CALLER)[ended.ref.uid]
            self._mark(f"unprepared:{ended.ref.uid}")
        assert answer == "", answer
        if chance.random() < FLUSH_CHANCE:
            self._flush()

    @staticmethod
    def _chips(chance: random.Random, live: Sequence[claims.Claim]) -> Sequence[str]:
        """One or two devices that no claim has a part of; none where there are none."""
        used = set[tuple[int, str]]().union(*(PARTS[result.device] for claim in live for result in claim.results))
        free = [device for device, parts in PARTS.items() if not parts & used]
        if not free:
            return ()
        first = chance.choice(free)
        beside = [device for device in free if not PARTS[device] & PARTS[first]]
        return (first, chance.choice(beside)) if beside and chance.random() < 0.3 else (first,)

    @staticmethod
    def _pipe(_: random.Random, live: Sequence[claims.Claim]) -> Sequence[str]:
        return ("pipe",) if len(live) < SHARES_MAX else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Past:
    """What had happened before a power cut, by its marks: the claims, the last word about each, and the hardware that was made."""

    known: dict[str, claims.Claim]
    last: dict[str, str]
    made: dict[str, int]

    @classmethod
    def of(cls, marks: Iterable[str]) -> "Past":
        """Read marks in their order."""
        past = cls(known={}, last={}, made={})
        for word, name, *devices in (mark.split(":") for mark in marks):
            if word == "make":
                past.made[name] = 1
            elif word == "unmake":
                past.made.pop(name, None)
            else:
                past.last[name] = word
                if devices:
                    past.known[name] = claim_of(name, *devices[0].split(","))
        return past

    def those(self, *words: str) -> list[claims.Claim]:
        """The claims whose last word is one of these."""
        return [self.known[uid] for uid, word in self.last.items() if word in words]


class NextBoot:
    """The node after a power cut: ``check`` starts its driver, prepares the claims of pods that still exist, and ends all."""

    def __init__(self, world: World, past: Past) -> None:
        self._world, self._past = world, past
        self._is_durable = not world.kind.volatile
        world.hardware.made = dict(past.made) if self._is_durable else {}
        for claim in past.known.values():
            world.source.put(claim)

    def check(self, boot: str) -> None:
        """Raise AssertionError where a claim is lost or something is leaked."""
        with self._world.driver(boot) as local:
            assert not local.is_lost, local.journal.quarantine
            self._check_found(local)
            local.recover()
            self._check_recovered(local)
            self._prepare_again(local)
            for claim in self._past.those("prepared", "preparing"):
                error = local.engine.unprepare([claim.ref], CALLER)[claim.ref.uid]
                assert error == "", error
            assert (self._world.hardware.made, local.journal.entries(), self._given()) == ({}, (), set())

    def _check_found(self, local: local_node.LocalNode) -> None:
        """What a durable driver made or answered is in its journal; a claim that was answered as unprepared is not."""
        if self._is_durable:
            journaled = _journaled(local)
            assert journaled >= {claim.ref.uid for claim in self._past.those("prepared")}, "an answered claim is lost"
            assert journaled.isdisjoint(claim.ref.uid for claim in self._past.those("unprepared")), "an ended claim is back"
            assert set(self._world.hardware.made) <= _identities(local), "nobody would undo this hardware"

    def _check_recovered(self, local: local_node.LocalNode) -> None:
        assert local.report.failed == ()
        assert set(self._world.hardware.made) <= _identities(local), "hardware without a claim"
        assert local.cdi.claims() <= _journaled(local), "a CDI file without a claim"

    def _prepare_again(self, local: local_node.LocalNode) -> None:
        """The kubelet prepares the claims of pods that were not ending, whatever claims the journal still has, and ends the others."""
        again = self._past.those("prepared", "preparing")
        wanted = set[str]()
        for claim in again:
            error = local.engine.prepare([claim.ref], CALLER)[claim.ref.uid].error
            assert error == "", error
            wanted |= {str(result.share_id or result.device) for result in claim.results}
        ending = [claim.ref for claim in self._past.those("unpreparing")]
        assert set(local.engine.unprepare(ending, CALLER).values()) <= {""}
        assert set(self._world.hardware.made) == wanted
        assert self._given() == wanted

    def _given(self) -> set[str]:
        """The identities that the node's CDI files give to containers."""
        documents = [json.loads(file.read_text()) for file in (self._world.folder / "cdi").glob("*.json")]
        return {value.partition("=")[2] for one in documents for value in one["devices"][0]["containerEdits"]["env"]}


def _journaled(local: local_node.LocalNode) -> set[str]:
    """The claims of the journal."""
    return {entry.claim.uid for entry in local.journal.entries()}


def _identities(local: local_node.LocalNode) -> set[str]:
    """The hardware that the journal says may exist."""
    return {str(intent["identity"]) for intent in local.journal.intents()}
