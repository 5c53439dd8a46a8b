"""What only the real kernel can show of shares: whose qdiscs are touched, what is put back, and that a death at any request is mended."""

import contextlib
import dataclasses
import inspect
import pathlib
import sys
import types
from collections.abc import Callable, Iterator

import pytest

from drakit import families
from drakit.core import errors
from drakit_nic import kernel_port, port
from drakit_nic import options as nic_options
from drakit_nic.netlink import link_requests
from drakit_nic.shaping import bpf, kernel_shares
from fakes import installed_drivers, netns
from fakes.nic_samples import MAC, index, share, uplink

pytestmark = pytest.mark.root


def tc(own: netns.Namespace, *words: str) -> str:
    return own.run("tc", *words)


def test_this_kernel_classifies_by_network_namespace(nics: kernel_port.KernelPort) -> None:
    assert (nics.shaping().classifier, nics.shaping().missing) == (port.Classifier.NETNS, "")


@pytest.mark.parametrize(
    "qdisc", [("tbf", "rate", "1gbit", "burst", "128k", "limit", "1m"), ("bfifo",), ("pfifo",)], ids=lambda words: words[0]
)
def test_a_root_qdisc_of_the_admin_is_named_refused_and_kept(
    own: netns.Namespace, nics: kernel_port.KernelPort, qdisc: tuple[str, ...]
) -> None:
    tc(own, "qdisc", "add", "dev", "nic0", "root", "handle", "7:", *qdisc)
    before = own.state()
    with pytest.raises(errors.HardwareError, match=rf"nic0 has a root qdisc of another program \({qdisc[0]} 7:\)"):
        nics.install(uplink(own), share(own))
    assert own.state() == before
    interface = nics.interface("nic0")
    assert interface is not None
    assert interface.queueing == f"{qdisc[0]} 7:"
    assert next(listed for listed in nics.interfaces() if listed.name == "nic0") == interface


def test_the_driver_s_and_the_default_qdisc_count_as_free(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    assert {interface.queueing for interface in nics.interfaces()} == {""}


@pytest.mark.parametrize("kind", ["clsact", "ingress"])
def test_an_ingress_qdisc_that_was_there_is_used_and_stays_with_its_filters(
    own: netns.Namespace, nics: kernel_port.KernelPort, kind: str
) -> None:
    tc(own, "qdisc", "add", "dev", "nic0", kind)
    tc(own, "filter", "add", "dev", "nic0", "ingress", "prio", "5", "protocol", "ip", "u32", "match", "u32", "0", "0", "flowid", ":1")
    before = own.state()
    nics.install(uplink(own), share(own))
    assert nics.check(uplink(own), [share(own)]) == ()
    assert "drakit_redirect" in tc(own, "filter", "show", "dev", "nic0", "ingress")
    nics.remove("share-1", share(own))
    assert own.state() == before


def test_the_driver_s_ingress_qdisc_stays_while_others_use_it(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    tc(own, "filter", "add", "dev", "nic0", "ingress", "prio", "5", "protocol", "ip", "u32", "match", "u32", "0", "0", "flowid", ":1")
    nics.remove("share-1", share(own))
    left = tc(own, "filter", "show", "dev", "nic0", "ingress")
    assert "pref 5 u32" in left
    assert "drakit" not in left
    assert "htb" not in tc(own, "qdisc", "show")


def test_a_foreign_link_with_the_ifb_name_is_refused_and_kept(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    own.ip("link", "add", f"drb{index(own)}", "type", "bridge")
    before = own.state()
    with pytest.raises(errors.HardwareError, match="belongs to a link of another program"):
        nics.install(uplink(own), share(own))
    assert own.state() == before


Tamper = tuple[str, ...]
IFB = "IFB"
TAMPERING: dict[str, tuple[Tamper, str]] = {
    "root deleted": (("tc", "qdisc", "del", "dev", "nic0", "root"), "the root qdisc is not drakit's"),
    "ingress root deleted": (("tc", "qdisc", "del", "dev", IFB, "root"), "the root qdisc of the ingress device is not drakit's"),
    "hook deleted": (("tc", "qdisc", "del", "dev", "nic0", "clsact"), "the ingress qdisc is missing"),
    "redirection deleted": (("tc", "filter", "del", "dev", "nic0", "ingress"), "the ingress redirection is missing"),
    "guard deleted": (("tc", "filter", "del", "dev", "nic0", "egress"), "the socket priority guard is missing"),
    "classifier deleted": (("tc", "filter", "del", "dev", "nic0"), "the egress classifier is missing"),
    "ingress classifier deleted": (("tc", "filter", "del", "dev", IFB), "the ingress classifier is missing"),
    "ifb deleted": (("ip", "link", "del", IFB), "the ingress device is missing or down"),
    "ifb down": (("ip", "link", "set", IFB, "down"), "the ingress device is missing or down"),
    "rate altered": (
        ("tc", "class", "change", "dev", "nic0", "parent", "da:1", "classid", "da:8000", "htb", "rate", "9gbit"),
        "egress: class da:8000 has rate 9000000000, not 390624",
    ),
    "share altered": (
        ("tc", "class", "change", "dev", IFB, "parent", "da:1", "classid", "da:101", "htb", "rate", "9gbit"),
        "ingress: class da:101 has rate 9000000000, not 100000000",
    ),
    "member deleted": (("tc", "class", "del", "dev", "nic0", "classid", "da:8000"), "egress: class da:8000 is missing"),
    "class added": (
        ("tc", "class", "add", "dev", "nic0", "parent", "da:1", "classid", "da:77", "htb", "rate", "9gbit"),
        "egress: class da:77 has no share",
    ),
    "queue altered": (
        ("tc", "qdisc", "change", "dev", "nic0", "handle", "8000:", "bfifo", "limit", "900"),
        "egress: class da:8000 has limit 900",
    ),
    "queue replaced": (("tc", "qdisc", "replace", "dev", "nic0", "parent", "da:8000", "pfifo"), "egress: class da:8000 has limit -1"),
}


@pytest.mark.parametrize("tampered", TAMPERING)
def test_parts_removed_or_changed_by_others_are_named_and_restored(
    own: netns.Namespace, nics: kernel_port.KernelPort, tampered: str
) -> None:
    if tampered == "queue altered" and nics.shaping().fair_queues:
        pytest.skip("queues are no FIFOs here")
    before = own.state()
    nics.install(uplink(own), share(own))
    nics.admit(share(own), cookie=7001, mac="02:aa:00:00:00:01")
    words, told = TAMPERING[tampered]
    own.run(*(f"drb{index(own)}" if word == IFB else word for word in words))
    named = nics.check(uplink(own), [share(own)])
    assert any(told in why for why in named), named
    assert nics.check(uplink(own), [share(own)]) == named, "a check changes nothing"
    mended = nics.repair(uplink(own), [share(own)])
    assert any(told in why for why in mended)
    assert nics.check(uplink(own), [share(own)]) == ()
    assert nics.members() == (port.Member(share_id="share-1", cookie=7001, mac="02:aa:00:00:00:01"),)
    nics.remove("share-1", share(own))
    assert own.state() == before


@pytest.mark.parametrize("tampered", ["root deleted", "hook deleted", "classifier deleted", "ifb deleted"])
def test_changes_made_while_no_driver_ran_are_reverted(own: netns.Namespace, nics: kernel_port.KernelPort, tampered: str) -> None:
    before = own.state()
    nics.install(uplink(own), share(own))
    nics.close()
    words, told = TAMPERING[tampered]
    own.run(*(f"drb{index(own)}" if word == IFB else word for word in words))
    later = kernel_port.KernelPort(own.name)
    assert any(told in why for why in later.repair(uplink(own), [share(own)]))
    assert later.check(uplink(own), [share(own)]) == ()
    later.remove("share-1", share(own))
    assert own.state() == before


def test_preparing_again_restores_the_other_shares_of_the_nic(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    for number in (1, 2):
        nics.install(uplink(own), share(own, number))
    tc(own, "qdisc", "del", "dev", "nic0", "root")
    nics.install(uplink(own), share(own))
    assert nics.check(uplink(own), [share(own, 1), share(own, 2)]) == ()


def test_the_programs_of_another_revision_or_mode_are_replaced_and_members_stay(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    older = kernel_port.KernelPort(own.name, candidates=lambda: [kernel_shares.ADDRESS])
    older.install(uplink(own), share(own))
    older.admit(share(own), cookie=7001, mac="02:aa:00:00:00:01")
    older.close()
    assert "the egress classifier is missing" in nics.repair(uplink(own), [share(own)])
    assert nics.check(uplink(own), [share(own)]) == ()
    assert "drakit_egress_netns_" in tc(own, "filter", "show", "dev", "nic0")
    assert nics.members() == (port.Member(share_id="share-1", cookie=7001, mac="02:aa:00:00:00:01"),)


@pytest.mark.parametrize("left", [(1, 2), (2, 1)], ids=["the first share first", "the second share first"])
def test_a_namespace_with_two_shares_keeps_the_class_of_the_other(
    own: netns.Namespace, nics: kernel_port.KernelPort, left: tuple[int, int]
) -> None:
    for number in (1, 2):
        nics.install(uplink(own), share(own, number))
        nics.admit(share(own, number), cookie=7001, mac=f"02:aa:00:00:00:{number:02x}")
    goes, stays = left
    nics.remove(f"share-{goes}", share(own, goes))
    assert nics.check(uplink(own), [share(own, stays)]) == ()
    nics.admit(share(own, stays), cookie=7001, mac="02:aa:00:00:00:09")
    nics.dismiss(share(own, stays), cookie=7001, mac=f"02:aa:00:00:00:{stays:02x}")
    assert nics.check(uplink(own), [share(own, stays)]) == ()


def test_a_member_that_another_process_admitted_has_a_class_of_its_own(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    other = kernel_port.KernelPort(own.name)
    nics.install(uplink(own), share(own))
    for number, process in enumerate((nics, other, nics, other, nics)):
        process.admit(share(own), cookie=7000 + number, mac=f"02:aa:00:00:00:{number:02x}")
    other.dismiss(share(own), cookie=7000, mac="02:aa:00:00:00:00")
    nics.admit(share(own), cookie=7009, mac="02:aa:00:00:00:09")
    assert nics.members() == other.members(of=share(own))
    assert len(nics.members()) == 5
    assert nics.check(uplink(own), [share(own)]) == ()
    other.close()


@pytest.mark.parametrize("others", [2, 40])
def test_neither_a_verb_nor_a_sandbox_reads_a_whole_map(own: netns.Namespace, nics: kernel_port.KernelPort, others: int) -> None:
    for number in range(1, others + 1):
        nics.install(uplink(own), share(own, number))
        nics.admit(share(own, number), cookie=7000 + number, mac=f"02:aa:00:00:00:{number:02x}")
    last = share(own, others + 1)
    with calls_of(bpf.entries, bpf.keys) as read:
        nics.install(uplink(own), last)
        nics.admit(last, cookie=8000, mac="02:aa:00:00:01:01")
        assert len(nics.members(of=last)) == 1
        assert nics.share(last.ifindex, last.minor) == last
        nics.remove(last.id, last)
        once = [name for name in read if name == "entries"]
        assert len(nics.members()) == others
    assert (once, len(read) > len(once)) == ([], True), "the counter sees whole maps being read"


def test_neither_start_nor_end_of_an_ipvlan_sandbox_reads_a_whole_map(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    first, other = (dataclasses.replace(share(own, number), child=port.ChildKind.IPVLAN) for number in (1, 2))
    for item in (first, other):
        nics.install(uplink(own), item)
    nics.admit(other, cookie=7002, mac="02:aa:00:00:00:02", hosts=("10.99.1.2",))
    hosts = ("10.99.1.1", "fd00:99::1")
    with calls_of(bpf.entries) as read:
        nics.admit(first, cookie=7001, mac="02:aa:00:00:00:01", hosts=hosts)
        nics.admit(first, cookie=7001, mac="02:aa:00:00:00:01", hosts=hosts)
        nics.dismiss(first, cookie=7001, mac="02:aa:00:00:00:01", hosts=hosts)
    assert read == []
    assert nics.check(uplink(own), [first, other]) == (), "no address of the sandbox is left"


@pytest.mark.parametrize("child, tried", [("macvlan", []), ("ipvlan", ["create_ipvlan"])])
def test_the_kernel_module_ipvlan_is_loaded_only_where_a_rule_has_it(
    own: netns.Namespace, tmp_path: pathlib.Path, child: nic_options.Child, tried: list[str]
) -> None:
    options = nic_options.NicOptions(netns=own.name, rules=(nic_options.NicRule(match="nic0", child=child),))
    site = families.Site(node="node-1", driver_name="nic.drakit.dev", home=tmp_path, pods=installed_drivers.no_pods)
    driver = installed_drivers.of("nic").build(options, site)
    with calls_of(link_requests.create_ipvlan) as seen:
        driver.discover()
    assert seen == tried


@contextlib.contextmanager
def calls_of(*watched: Callable[..., object]) -> Iterator[list[str]]:
    """The names of these functions, at each call by this thread."""
    codes = {inspect.unwrap(function).__code__: function.__name__ for function in watched}
    seen: list[str] = []

    def told(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            seen.append(codes[frame.f_code])

    sys.setprofile(told)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def test_a_sandbox_cannot_take_the_host_s_address(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    with pytest.raises(errors.HardwareError, match=f"^admit: {MAC} is the address of nic0 itself$"):
        nics.admit(share(own), cookie=7001, mac=MAC)
    assert nics.check(uplink(own), [share(own)]) == ()


def test_a_nic_of_another_speed_is_changed_in_place(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    filters = tc(own, "filter", "show", "dev", "nic0")
    slower = uplink(own, speed=10**9)
    assert nics.repair(slower, [share(own)]) == tuple(
        f"{side}: class da:1 has rate 10000000000, not 1000000000; ceil 10000000000, not 1000000000" for side in ("egress", "ingress")
    )
    assert "rate 1Gbit" in tc(own, "class", "show", "dev", "nic0", "classid", "da:1")
    assert tc(own, "filter", "show", "dev", "nic0") == filters


def test_a_removed_nic_leaves_nothing_behind(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    own.make_nic("nic1", mac="02:00:00:00:00:21")
    nics.install(uplink(own), share(own))
    gone, kept = share(own), uplink(own)
    own.ip("link", "del", "nic0")
    nics.remove("share-1", gone)
    assert not [name for name in own.links() if name.startswith("drb")]
    assert nics.shares() == ()
    with pytest.raises(errors.HardwareError, match="nic0 is no longer there"):
        nics.install(kept, gone)
    assert not [name for name in own.links() if name.startswith("drb")]


def test_rates_above_32_bits_are_applied(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    fast = uplink(own, speed=4 * 10**11)
    nics.install(fast, share(own, bandwidth=10**11))
    (traffic,) = nics.traffic()
    assert (traffic.egress.rate, traffic.ingress.ceil) == (10**11, 10**11)
    assert nics.check(fast, [share(own, bandwidth=10**11)]) == ()


class DiedError(BaseException):
    """The process died here."""


def dying_after(requests: int) -> Callable[[], None]:
    left = [requests]

    def after_effect() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise DiedError

    return after_effect


def life(nics: kernel_port.KernelPort, own: netns.Namespace) -> None:
    """Two shares that come and go, one of them changed and used by two sandboxes."""
    first, second = share(own, 1), share(own, 2)
    nics.install(uplink(own), first)
    nics.admit(first, cookie=7001, mac="02:aa:00:00:00:01")
    nics.install(uplink(own), second)
    nics.admit(first, cookie=7002, mac="02:aa:00:00:00:02")
    nics.install(uplink(own), share(own, 2, bandwidth=3 * 10**8))
    nics.dismiss(first, cookie=7001, mac="02:aa:00:00:00:01")
    nics.remove(first.id, first)
    nics.remove(second.id, second)


def requests_of_a_life() -> int:
    """How many requests of a life change the kernel."""
    with netns.namespace() as own:
        own.make_nic("nic0", mac=MAC)
        seen: list[None] = []
        life(kernel_port.KernelPort(own.name, after_effect=lambda: seen.append(None)), own)
        return len(seen)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
def test_a_crash_after_any_request_is_repaired_and_leaves_nothing_behind(every: int) -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    total = requests_of_a_life()
    assert total > 50
    for dies_after in range(0, total, every):
        with netns.namespace() as own:
            own.make_nic("nic0", mac=MAC)
            before = own.state()
            victim = kernel_port.KernelPort(own.name, after_effect=dying_after(dies_after))
            with pytest.raises(DiedError):
                life(victim, own)
            victim.close()
            heir = kernel_port.KernelPort(own.name)
            wanted = [share(own, 1), share(own, 2)]
            heir.repair(uplink(own), wanted)
            assert heir.check(uplink(own), wanted) == (), dies_after
            assert heir.shares() == tuple(wanted)
            life(heir, own)
            assert own.state() == before, dies_after
            heir.close()


def test_installing_and_removing_100_shares_leaves_the_kernel_unchanged(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    before = own.state()
    listed = [share(own, number) for number in range(1, 101)]
    for item in listed:
        nics.install(uplink(own), item)
        nics.admit(item, cookie=7000 + item.minor, mac=item.mac)
    assert nics.shares() == tuple(sorted(listed, key=lambda item: item.id))
    assert nics.check(uplink(own), listed) == ()
    for item in listed:
        nics.remove(item.id, item)
    assert own.state() == before
    assert nics.shares() == ()


def test_a_class_of_a_sandbox_that_a_crash_left_does_not_stop_the_next_prepare(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    ifb = next(name for name in own.links() if name.startswith("drb"))
    for link in ("nic0", ifb):
        tc(own, "class", "add", "dev", link, "parent", f"da:{share(own).minor:x}", "classid", "da:8000", "htb", "rate", "8kbit")
    nics.install(uplink(own), share(own))
    assert nics.check(uplink(own), [share(own)]) == ()
