"""A node whose journal is damaged while no driver runs, and seeded mutations of the journal's files.

``Node.story`` prepares and unprepares claims and copies the files at some points, so that mutations can put older copies in place. The driver is
killed at the end: its write-ahead log stays.
"""

import contextlib
import dataclasses
import pathlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import lifecycle, names, quantity, records
from drakit.journal import files, journal
from drakit.node import engine, local_node
from fakes import author, claim_source, claim_statuses, crash_node, journal_samples

NAMES = tuple(f"{files.DATABASE}{suffix}" for suffix in ("", *files.SIDE_FILES))
BOOT = "boot-1"
CLAIMS = 14
Images = Mapping[str, bytes]


class Recalling(author.FakeDriver):
    """A driver that can tell from a device what it must have planned."""

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return self.plan(grant)


@dataclasses.dataclass
class Node:
    """The node's folders, hardware and claims, which outlive the driver."""

    folder: pathlib.Path
    hardware: author.Hardware = dataclasses.field(default_factory=author.Hardware)
    source: claim_source.FakeClaimSource = dataclasses.field(default_factory=claim_source.FakeClaimSource)
    in_use: dict[names.ClaimUid, claims.Claim] = dataclasses.field(default_factory=dict)
    copies: list[Images] = dataclasses.field(default_factory=list)
    entries: Mapping[names.ClaimUid, lifecycle.Entry] = dataclasses.field(default_factory=dict)

    def open(self) -> local_node.LocalNode:
        """A driver on this node, as one that serves a kubelet."""
        spec = local_node.DriverSpec(
            driver_name=author.FakeDriver.name,
            build=lambda _: Recalling(self.hardware),
            identity=engine.NodeIdentity(pool=crash_node.POOL, boot_id=BOOT),
        )
        return local_node.LocalNode.open(spec, local_node.Folders(home=self.home, cdi=self.cdi), self.source, checks_new=True)

    @property
    def home(self) -> pathlib.Path:
        return self.folder / "home"

    @property
    def cdi(self) -> pathlib.Path:
        return self.folder / "cdi"

    @property
    def listing(self) -> claim_statuses.FakeClaimList:
        return claim_statuses.FakeClaimList(*self.in_use.values())

    def images(self) -> Images:
        """The content of the journal's files."""
        return {name: (self.home / name).read_bytes() for name in NAMES if (self.home / name).exists()}

    def put(self, images: Images) -> None:
        """Replace the journal's files, as while no driver runs."""
        for path in self.home.glob(f"{files.DATABASE}*"):
            path.unlink()
        for name, content in images.items():
            (self.home / name).write_bytes(content)

    def cdi_files(self) -> Images:
        """The CDI files of claims."""
        return {path.name: path.read_bytes() for path in self.cdi.glob("*.json")}

    def story(self, chance: random.Random) -> None:
        """Prepare claims, end some, prepare others on the same devices, and die."""
        with self.open() as local:
            assert local.restorer.restore(self.listing) == {}
            local.recover()
            for number in range(CLAIMS):
                self._prepare(local, number)
                if number % 3 == 2:
                    self._unprepare(local, chance.choice(sorted(self.in_use)))
                if number in {3, 7, 10, CLAIMS - 1}:
                    self.copies.append(self.images())
                if number == 8:
                    with contextlib.closing(sqlite3.connect(self.home / files.DATABASE)) as database:
                        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.put(self.copies[-1])
        self.entries = self.journaled()

    def journaled(self) -> Mapping[names.ClaimUid, lifecycle.Entry]:
        """The entries of the intact journal, which stays as it is."""
        copy = self.folder / "copy"
        shutil.copytree(self.home, copy)
        with journal.Journal.open(copy, driver=author.FakeDriver.name, boot_id=BOOT) as opened:
            entries = {entry.claim.uid: entry for entry in opened.entries()}
        shutil.rmtree(copy)
        return entries

    def _prepare(self, local: local_node.LocalNode, number: int) -> None:
        device = ("pipe", "chip-0-left", "pipe", "chip-1")[number % 4]
        if device != "pipe" and any(claim.results[0].device == device for claim in self.in_use.values()):
            device = "pipe"
        result = claims.AllocationResult(
            request="r",
            driver=author.FakeDriver.name,
            pool=crash_node.POOL,
            device=device,
            share_id=journal_samples.share(number) if device == "pipe" else None,
            consumed_capacity={"bandwidth": quantity.Quantity.parse("1G")} if device == "pipe" else {},
        )
        ref = journal_samples.ref(number)
        claim = claims.Claim(ref=ref, results=(result,), is_reserved=True)
        self.source.put(claim)
        self.in_use[ref.uid] = claim
        assert local.engine.prepare([ref], crash_node.Waiting())[ref.uid].error == ""

    def _unprepare(self, local: local_node.LocalNode, uid: names.ClaimUid) -> None:
        claim = self.in_use.pop(uid)
        self.source.remove(claim.ref)
        assert local.engine.unprepare([claim.ref], crash_node.Waiting())[uid] == ""


Mutation = Callable[[random.Random, Images, Images], Images]
"""Returns the damaged files, from the last ones and those of an older copy."""


def _some(chance: random.Random, images: Images) -> str:
    return chance.choice(sorted(name for name in images if images[name] and not name.endswith("-shm")))


def _flip(chance: random.Random, last: Images, _older: Images) -> Images:
    name = _some(chance, last)
    content = bytearray(last[name])
    for _ in range(chance.choice((1, 1, 1, 3))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return {**last, name: bytes(content)}


def _flip_header(chance: random.Random, last: Images, _older: Images) -> Images:
    name = _some(chance, last)
    content = bytearray(last[name])
    content[chance.randrange(min(len(content), 100))] ^= 1 << chance.randrange(8)
    return {**last, name: bytes(content)}


def _truncate(chance: random.Random, last: Images, _older: Images) -> Images:
    name = _some(chance, last)
    return {**last, name: last[name][: chance.randrange(len(last[name]))]}


def _remove(chance: random.Random, last: Images, _older: Images) -> Images:
    removed = chance.choice((NAMES[1:], (NAMES[0],), NAMES, (NAMES[1],), (NAMES[2],)))
    return {name: content for name, content in last.items() if name not in removed}


def _older_copy(chance: random.Random, last: Images, older: Images) -> Images:
    replaced = chance.choice((NAMES, (NAMES[0],), (NAMES[1],), NAMES[:2]))
    kept = {name: content for name, content in last.items() if name not in replaced}
    return {**kept, **{name: older[name] for name in replaced if name in older}}


def _older_database_alone(_chance: random.Random, _last: Images, older: Images) -> Images:
    return {NAMES[0]: older[NAMES[0]]}


def _swap(chance: random.Random, last: Images, _older: Images) -> Images:
    one, other = chance.sample(sorted(last), 2)
    return {**last, one: last[other], other: last[one]}


def _garbage(chance: random.Random, last: Images, _older: Images) -> Images:
    name = chance.choice(sorted(last))
    content = bytearray(last[name])
    start = chance.randrange(max(1, len(content)))
    size = chance.choice((16, 512, 4096, len(content)))
    content[start : start + size] = chance.randbytes(len(content[start : start + size]))
    return {**last, name: bytes(content)}


def _zeros(chance: random.Random, last: Images, _older: Images) -> Images:
    name = _some(chance, last)
    content = bytearray(last[name])
    start = chance.randrange(len(content) // 512 + 1) * 512
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    return {**last, name: bytes(content)}


def _old_page(chance: random.Random, last: Images, older: Images) -> Images:
    """One page of the database is of an older copy, as after a lost write."""
    content = bytearray(last[NAMES[0]])
    page = chance.randrange(max(1, len(content) // 4096)) * 4096
    old = older[NAMES[0]][page : page + 4096]
    content[page : page + len(old)] = old
    return {**last, NAMES[0]: bytes(content)}


MUTATIONS: Mapping[str, Mutation] = {
    "flip": _flip,
    "flip in a header": _flip_header,
    "truncate": _truncate,
    "remove": _remove,
    "older copy": _older_copy,
    "older database alone": _older_database_alone,
    "swap": _swap,
    "garbage": _garbage,
    "zeros": _zeros,
    "old page": _old_page,
}
