"""The kernel takes our programs and maps, and says why when it does not."""

import contextlib
import os
import pathlib
import platform
import resource
from collections.abc import Callable, Iterator

import pytest

from drakit_nic import port
from drakit_nic.shaping import bpf, classifiers, htb, maps, parts, socket_namespace, tc_messages
from fakes import netns

pytestmark = pytest.mark.root

HELPER_SINCE = (6, 15)


@pytest.fixture
def memory() -> Iterator[maps.Maps]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    made = maps.Maps.complete({})
    yield made
    made.close()


def share(minor: int) -> port.Share:
    return port.Share(id=f"share-{minor}", interface="nic0", ifindex=3, mac="02:11:22:33:44:55", bandwidth=10**12, ceil=10**12, minor=minor)


def test_a_written_map_entry_is_read_back(memory: maps.Maps) -> None:
    seat = htb.ShareMember(minor=0x8001, share=0x100, cookie=2**63, mac="02:aa:00:00:00:01")
    memory.write_share(share(0x100))
    memory.add_member(seat)
    memory.route_to("02:00:00:00:00:20", htb.HOST)
    memory.set_owner((2**64 - 1, "02:00:00:00:00:20"), htb.HOST)
    assert memory.read_shares(3, "nic0") == {0x100: share(0x100)}
    assert memory.read_members() == (seat,)
    assert memory.addresses() == {seat.mac, "02:00:00:00:00:20"}
    assert (memory.route(seat.mac), memory.route("02:00:00:00:00:99")) == (0x8001, None)
    assert memory.read_owners() == {(2**64 - 1, "02:00:00:00:00:20"): htb.HOST}
    memory.set_owner((2**64 - 1, "02:00:00:00:00:20"), htb.STRAY, unless_owned=True)
    assert memory.owner((2**64 - 1, "02:00:00:00:00:20")) == htb.HOST
    for _ in range(2):
        memory.delete_share(0x100)
        memory.remove_member(seat.mac)
        memory.delete_owner((2**64 - 1, "02:00:00:00:00:20"))
    assert not memory.has_shares()
    assert memory.read_owners() == {}
    assert memory.read_members() == ()


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_reading_many_at_a_time_gives_what_reading_one_by_one_gives(memory: maps.Maps, count: int) -> None:
    for number in range(count):
        bpf.update(memory.routes, number.to_bytes(8, "big"), number.to_bytes(16, "big"))
    one_by_one = {key: bpf.look_up(memory.routes, key, 16) for key in set(bpf.keys(memory.routes, 8))}
    assert len(one_by_one) == count
    assert bpf.entries(memory.routes, 8, 16) == one_by_one


def test_a_share_id_that_does_not_fit_is_refused(memory: maps.Maps) -> None:
    with pytest.raises(ValueError, match="is longer than 112 bytes"):
        memory.write_share(port.Share(id="x" * 113, interface="nic0", ifindex=3, mac="02:11:22:33:44:55", bandwidth=1, minor=0x100))


def from_memory(memory: maps.Maps) -> bytes:
    """The classifier that every kernel of today's distributions takes."""
    return classifiers.egress(owners=memory.owners, ledger=memory.ledger, by_namespace=True, offsets=socket_namespace.read())


def test_the_kernel_loads_every_program_and_lists_its_maps(memory: maps.Maps) -> None:
    memory.ensure_hosts()
    written = {
        "from_memory": from_memory(memory),
        "by_address": classifiers.egress(owners=memory.owners, ledger=memory.ledger, by_namespace=False),
        "ingress": classifiers.ingress(routes=memory.routes, ledger=memory.ledger, host_class=0x00DA0002),
        "ingress_of_ipvlan": classifiers.ingress(routes=memory.routes, ledger=memory.ledger, host_class=0x00DA0002, hosts=memory.hosts),
        "everything": classifiers.everything(),
        "guard": classifiers.guard(),
    }
    if tuple(int(part) for part in platform.release().split(".")[:2]) >= HELPER_SINCE:
        written["by_helper"] = classifiers.egress(owners=memory.owners, ledger=memory.ledger, by_namespace=True)
    for name, program in written.items():
        os.close(bpf.load(name, program))


def test_a_refused_program_is_an_error_with_the_verifier_s_log() -> None:
    with pytest.raises(OSError, match=r"^\[Errno 22\] bpf: Invalid argument: \w+"):
        bpf.load("broken", classifiers.guard()[:-8])


def test_a_program_that_is_gone_uses_no_maps() -> None:
    assert bpf.maps_of(2**31) == {}


def descriptors() -> set[int]:
    """Return the open descriptors of this process."""
    return {int(link.name) for link in list(pathlib.Path("/proc/self/fd").iterdir()) if link.is_symlink()}


@contextlib.contextmanager
def only(more: int) -> Iterator[None]:
    """Let this process open only so many more descriptors."""
    taken, limit = descriptors(), 0
    while limit in taken or more:
        more -= limit not in taken
        limit += 1
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("more", [1, 2])
@pytest.mark.parametrize("what", ["create", "open", "open for a NIC"])
def test_maps_that_cannot_all_be_opened_leave_no_descriptor(memory: maps.Maps, what: str, more: int) -> None:
    loaded = bpf.load("three", from_memory(memory))
    number = next(
        int(line.split()[1]) for line in pathlib.Path(f"/proc/self/fdinfo/{loaded}").read_text().splitlines() if "prog_id" in line
    )
    classifier = tc_messages.Filter(name="three", program=number)
    others = dict.fromkeys(("root", "hook", "link", "ifb_root", "redirect", "guard"))
    present = parts.NicParts(ingress=classifier, egress=classifier, **others)
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: maps.Maps.complete({}),
        "open": lambda: bpf.maps_of(number),
        "open for a NIC": lambda: parts.open_maps(present, None),
    }
    before = descriptors()
    with only(more if what != "open" else 1), pytest.raises(OSError, match="Too many open files"):
        calls[what]()
    assert descriptors() == before
    os.close(loaded)
