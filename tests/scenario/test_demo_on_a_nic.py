"""The demo on a real interface, in a process of its own: a veth end in a namespace, and all that the kernel says of it before and after."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from drakit_nic import kernel_port, port
from drakit_tools.demo.nic import saved_state
from fakes import demo, forked_cli, netns

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

MAC = "02:00:00:00:00:20"
PROMISES = [
    "nothing has changed so far",
    "one device is offered",
    "consumed capacity is rounded up to the step",
    "each has its own share ID",
    "the root queueing discipline is the driver's HTB",
    "rate and ceil of every share are its claim's, in both directions",
    "the host has its reserve",
    "the host's addresses and routes on it are unchanged",
    "each has its claim's address, and is up",
    "the kernel assigns their frames to their shares' classes",
    "a pod on the host's network is refused",
    "the pods have sent no frame",
    "egress: the same classes, none removed or replaced",
    "their counters continue",
    "the pods' interfaces are unchanged",
    "nic0 is restored: link, addresses, routes, queueing disciplines, filters",
    "no share is left",
    "the saved state is removed",
]


@dataclasses.dataclass(frozen=True)
class Host:
    """A namespace with interfaces, in which demos run, and a folder for them."""

    space: netns.Namespace
    folder: pathlib.Path
    commands: forked_cli.Commands

    @property
    def place(self) -> pathlib.Path:
        """Where a demo keeps its note."""
        return self.folder / "nic"

    def arguments(self, *more: str, interface: str = "nic0", speed: str = "1G") -> list[str]:
        given = ["--speed", speed] if speed else []
        return ["demo", "--nic", interface, *given, "--folder", str(self.place), *more]

    def run(self, *more: str, interface: str = "nic0", speed: str = "1G") -> subprocess.CompletedProcess[str]:
        return self.finished(*self.arguments(*more, interface=interface, speed=speed))

    def finished(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return demo.finished(self.folder, *arguments, commands=self.commands, namespace=self.space.name)

    def restore(self) -> subprocess.CompletedProcess[str]:
        return self.run("--restore", speed="")

    def running(self, *more: str, interface: str = "nic0") -> contextlib.AbstractContextManager[demo.Running]:
        return self.started(*self.arguments(*more, interface=interface))

    def started(self, *arguments: str) -> contextlib.AbstractContextManager[demo.Running]:
        return demo.running(self.folder, *arguments, commands=self.commands, namespace=self.space.name)

    def remembers(self) -> bool:
        return (self.place / saved_state.FILE).exists()


@pytest.fixture
def host(commands: forked_cli.Commands) -> Iterator[Host]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as space, demo.short_folder() as folder:
        space.ip("link", "set", "lo", "up")
        space.make_nic("nic0", mac=MAC)
        yield Host(space, folder, commands)


@pytest.fixture
def uplink(host: Host) -> Host:
    """The host's own way out is nic0: it has addresses, a default route and another route."""
    host.space.ip("address", "add", "10.1.0.2/24", "dev", "nic0")
    host.space.ip("address", "add", "10.1.0.3/24", "dev", "nic0")
    host.space.ip("route", "add", "default", "via", "10.1.0.1", "metric", "100")
    host.space.ip("route", "add", "10.9.0.0/16", "via", "10.1.0.7", "table", "77")
    return host


def kept(out: str) -> list[str]:
    return re.findall(r"^  ok  (.*)$", out, re.MULTILINE)


def test_it_says_what_it_changes_keeps_every_promise_and_leaves_the_kernel_as_it_was(host: Host) -> None:
    before = host.space.state()
    ran = host.run()
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert set(PROMISES) <= set(kept(ran.stdout))
    assert f"All {len(kept(ran.stdout))} checks held" in ran.stdout
    assert [int(number) for number in re.findall(r"^\[(\d)/7\] ", ran.stdout, re.MULTILINE)] == list(range(1, 8))
    assert re.search(r"^    training +333M +340M ", ran.stdout, re.MULTILINE)
    assert host.space.state() == before
    assert not host.remembers()
    announced, changed = ran.stdout.index("While the demo runs:"), ran.stdout.index("before the first change")
    assert announced < ran.stdout.index("Frames sent on the network: none") < changed
    assert changed < ran.stdout.index("nothing has changed so far") < ran.stdout.index("[2/7]")


@pytest.mark.parametrize(
    "route, reason", [(True, "carries the host's default route"), (False, "has an address of the host")], ids=["default route", "address"]
)
def test_an_interface_the_host_uses_is_refused_without_a_yes(uplink: Host, *, route: bool, reason: str) -> None:
    if not route:
        uplink.space.ip("route", "delete", "default")
    before = uplink.space.state()
    ran = uplink.run()
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"drakit: --nic: nic0 {reason}: the demo would limit the host's own traffic through it to 250M bit/s")
    assert ran.stderr.endswith("add --yes-take-over\n")
    assert uplink.space.state() == before
    assert not uplink.remembers()


def test_a_confirmed_take_over_keeps_addresses_and_the_default_route(uplink: Host) -> None:
    before = uplink.space.state()
    with uplink.running("--yes-take-over", "--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        meanwhile = uplink.space.state()
        assert ran.end(signal.SIGINT) == 0, ran.out
    assert "--yes-take-over is set: nic0 carries the host's default route." in ran.out
    assert "the host's addresses and routes on it are unchanged" in kept(ran.out)
    assert (meanwhile["addresses"], meanwhile["routes"]) != (None, None)
    assert meanwhile["routes"] == before["routes"]
    assert meanwhile["qdiscs"] != before["qdiscs"]
    assert uplink.space.state() == before


@pytest.mark.parametrize("number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.full) for one in (signal.SIGTERM, signal.SIGHUP))])
def test_interrupted_in_the_middle_it_puts_everything_back(uplink: Host, number: signal.Signals) -> None:
    before = uplink.space.state()
    with uplink.running("--yes-take-over") as ran:
        ran.read_until(r"^\[5/7\]")
        assert ran.end(number) == 130, ran.out
    assert "Interrupted. nic0 is restored." in ran.out
    assert "Traceback" not in ran.out
    assert uplink.space.state() == before
    assert not uplink.remembers()


@pytest.mark.parametrize("chapter", [4, *(pytest.param(one, marks=pytest.mark.full) for one in (2, 3, 5, 6))])
def test_killed_in_any_chapter_it_is_put_back_by_restore(uplink: Host, chapter: int) -> None:
    before = uplink.space.state()
    with uplink.running("--yes-take-over") as ran:
        ran.read_until(rf"^\[{chapter}/7\]")
        assert ran.end(signal.SIGKILL) == -signal.SIGKILL
    assert uplink.remembers()
    restored = uplink.restore()
    assert (restored.returncode, restored.stderr) == (0, ""), restored.stdout
    assert "An earlier demo on nic0 (pid " in restored.stdout
    assert "nic0 is restored." in restored.stdout
    assert uplink.space.state() == before
    assert not uplink.remembers()
    assert "Nothing to restore on nic0" in uplink.restore().stdout


@pytest.mark.full
@pytest.mark.parametrize("milliseconds", range(0, 1800, 30))
def test_killed_at_any_moment_it_is_put_back_by_restore(uplink: Host, milliseconds: int) -> None:
    before = uplink.space.state()
    with uplink.running("--yes-take-over") as ran:
        ran.read_until(r"^\[2/7\]")
        time.sleep(milliseconds / 1000)
        ran.end(signal.SIGKILL)
    restored = uplink.restore()
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert uplink.space.state() == before


def test_killed_with_shares_in_use_the_next_demo_puts_them_back_and_goes_on(host: Host) -> None:
    before = host.space.state()
    with host.running("--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        ran.end(signal.SIGKILL)
    assert host.space.state() != before, "a killed demo puts nothing back"
    again = host.run()
    assert (again.returncode, again.stderr) == (0, ""), again.stdout
    assert again.stdout.index("An earlier demo on nic0") < again.stdout.index("nic0 is restored.") < again.stdout.index("[1/7]")
    assert set(PROMISES) <= set(kept(again.stdout))
    assert host.space.state() == before


def test_a_restore_that_is_killed_is_completed_by_the_next(host: Host) -> None:
    before = host.space.state()
    with host.running("--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        ran.end(signal.SIGKILL)
    with host.started(*host.arguments("--restore")) as restoring:
        restoring.read_until("An earlier demo")
        restoring.end(signal.SIGKILL)
    assert host.restore().returncode == 0
    assert host.space.state() == before
    assert not host.remembers()


@pytest.mark.parametrize("damage", [b"", pytest.param(b"no database" * 1000, marks=pytest.mark.full)], ids=["empty", "garbage"])
def test_with_its_journal_lost_it_is_put_back_all_the_same(host: Host, damage: bytes) -> None:
    before = host.space.state()
    with host.running("--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        ran.end(signal.SIGKILL)
    journals = [file for file in host.place.rglob("*") if file.is_file() and file.name.startswith("journal")]
    assert journals
    for file in journals:
        file.write_bytes(damage)
    restored = host.restore()
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert host.space.state() == before


@pytest.mark.full
def test_what_others_changed_after_a_kill_is_reported_and_left_alone(host: Host) -> None:
    with host.running("--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        ran.end(signal.SIGKILL)
    host.space.ip("address", "add", "10.7.0.2/24", "dev", "nic0")
    restored = host.restore()
    assert restored.returncode == 0
    assert "These differences come from another program" in restored.stdout
    assert "    + address 10.7.0.2/24 scope 0\n" in restored.stdout
    assert "10.7.0.2/24" in host.space.ip("address", "show", "dev", "nic0")
    assert "htb" not in host.space.run("tc", "qdisc")


@pytest.mark.full
def test_an_interface_that_was_renamed_after_a_kill_is_put_back_under_its_new_name(host: Host) -> None:
    before = json.loads(host.space.run("tc", "-j", "qdisc"))
    with host.running("--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        ran.end(signal.SIGKILL)
    host.space.ip("link", "set", "nic0", "down")
    host.space.ip("link", "set", "nic0", "name", "other0", "up")
    refused = host.finished("demo", "--nic", "other0", "--speed", "1G", "--folder", str(host.folder / "else"))
    assert "other0 carries shares of a drakit driver" in refused.stderr
    assert host.restore().returncode == 0
    after = json.loads(host.space.run("tc", "-j", "qdisc"))
    assert [item["kind"] for item in after] == [item["kind"] for item in before]


def test_a_second_demo_on_the_interface_is_refused_by_name(host: Host) -> None:
    with host.running("--keep") as ran:
        ran.read_until("The shares stay until Ctrl-C")
        other = ["demo", "--nic", "nic0", "--speed", "1G", "--folder", str(host.folder / "other")]
        second = host.finished(*other)
        third = host.restore()
        assert ran.end(signal.SIGINT) == 0, ran.out
    message = f"drakit: --nic: another demo uses nic0 (pid {ran.pid}); wait until it ends\n"
    assert (second.returncode, second.stdout, second.stderr) == (1, "", message)
    assert (third.returncode, third.stdout, third.stderr) == (1, "", message)
    assert set(PROMISES) <= set(kept(ran.out)), "the first is not disturbed"


@pytest.mark.full
def test_an_interface_that_vanishes_ends_it_with_status_1_and_nothing_left(host: Host) -> None:
    links = host.space.links().keys()
    with host.running() as ran:
        ran.read_until(r"^\[5/7\]")
        host.space.ip("link", "delete", "nic0")
        assert ran.end() == 1, ran.out
    assert "FAILED: " in ran.out
    assert "Traceback" not in ran.out
    assert host.space.links().keys() == links - {"nic0", "nic0-wire"}
    assert not host.remembers()


def test_an_admin_s_hook_and_filters_stay(host: Host) -> None:
    host.space.run("tc", "qdisc", "add", "dev", "nic0", "clsact")
    host.space.run(
        "tc", "filter", "add", "dev", "nic0", "ingress", "pref", "7", "protocol", "ip", *["u32", "match", "u32", "0", "0", "flowid", ":1"]
    )
    before, filters = host.space.state(), host.space.run("tc", "filter", "show", "dev", "nic0", "ingress")
    refused = host.run()
    assert refused.stderr.startswith("drakit: --nic: nic0 has tc filters of another program: the demo would limit ")
    ran = host.run("--yes-take-over")
    assert ran.returncode == 0, ran.stdout
    assert host.space.state() == before
    assert host.space.run("tc", "filter", "show", "dev", "nic0", "ingress") == filters


def test_with_traffic_no_class_lets_out_more_than_its_rate(host: Host) -> None:
    before = host.space.state()
    ran = host.run("--traffic", speed="200M")
    assert ran.returncode == 0, ran.stdout
    assert kept(ran.stdout).count("training: no more than its rate") == 2
    assert kept(ran.stdout).count("storage: no more than its rate") == 2
    sent = [float(share) for share in re.findall(r"([\d.]+)%$", ran.stdout, re.MULTILINE)]
    assert len(sent) == 4
    assert all(0 < share <= 102 for share in sent)
    assert host.space.state() == before


def test_without_traffic_the_wire_gets_no_frame(host: Host) -> None:
    def received() -> int:
        return int(host.space.run("cat", "/sys/class/net/nic0-wire/statistics/rx_packets"))

    host.space.run("sysctl", "-q", "-w", "net.ipv6.conf.nic0.disable_ipv6=1") if netns.HAS_IPV6 else ""
    before = received()
    assert host.run().returncode == 0
    assert received() == before


def test_by_default_it_keeps_its_note_where_the_next_start_finds_it(commands: forked_cli.Commands) -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    name = f"nd{os.getpid()}"
    with netns.namespace() as space, demo.short_folder() as folder:
        space.make_nic(name, mac=MAC)
        host, before, place = Host(space, folder, commands), space.state(), saved_state.STATE / name
        command = ["demo", "--nic", name]
        with host.started(*command, "--speed", "1G") as ran:
            ran.read_until(r"^\[5/7\]")
            ran.end(signal.SIGKILL)
        assert (place / saved_state.FILE).stat().st_mode & 0o077 == 0 or place.stat().st_mode & 0o077 == 0
        restored = host.finished(*command, "--restore")
        assert restored.returncode == 0, restored.stdout + restored.stderr
        assert not place.exists()
        assert space.state() == before


def test_shares_of_a_driver_are_not_touched(host: Host) -> None:
    machine = kernel_port.KernelPort(host.space.name)
    with contextlib.closing(machine):
        nic = machine.interface("nic0")
        assert nic is not None
        share = port.Share(id="share-1", interface="nic0", ifindex=nic.ifindex, mac="02:99:00:00:00:01", bandwidth=10**8, minor=0x100)
        machine.install(port.Uplink(interface="nic0", ifindex=nic.ifindex, mac=MAC, speed=10**9), share)
        refused = host.run()
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "nic0 carries shares of a drakit driver, which the demo would remove" in refused.stderr
        assert machine.shares() == (share,)


@pytest.mark.parametrize(
    "made, given, message",
    [
        ((), ("--nic", "nic9"), "drakit: --nic: there is no interface 'nic9'; did you mean nic0?\n"),
        (
            (),
            ("--nic", "nic0"),
            "drakit: --nic: nic0 is virtual (veth), so its reported speed is ignored; add --speed RATE, for example --speed 1G\n",
        ),
        ((), ("--nic", "nic0", "--speed", "9M"), "drakit: --speed: 9M is too slow to be shared; the minimum is 10M\n"),
        ((), ("--nic", "nic0", "--speed", "fast"), "drakit: --speed: "),
        ((), ("--nic", "lo", "--speed", "1G"), "drakit: --nic: lo is the loopback interface\n"),
        (
            ("ip", "link", "set", "nic0", "down"),
            ("--nic", "nic0", "--speed", "1G"),
            "drakit: --nic: nic0 is down, so its children cannot be up; run: ip link set nic0 up\n",
        ),
        (
            ("ip", "link", "set", "nic0-wire", "down"),
            ("--nic", "nic0", "--speed", "1G", "--traffic"),
            "drakit: --traffic: nic0 has no link, so nothing can be sent; remove --traffic\n",
        ),
        (
            ("tc", "qdisc", "add", "dev", "nic0", "root", "pfifo"),
            ("--nic", "nic0", "--speed", "1G"),
            "drakit: --nic: nic0 has a root qdisc of another program (pfifo ",
        ),
        (
            (),
            ("--nic", "nic0", "--speed", "1G", "--mock", "dgx-h100"),
            "drakit: --mock: cannot be combined with --nic; remove one of the two",
        ),
        ((), ("--traffic",), "drakit: --traffic: needs a real interface; add --nic IFNAME\n"),
        ((), ("--nic", "nic0", "--speed", "1G", "--folder", "/tmp"), "drakit: --folder: /tmp is not empty"),
        ((), ("--nic", "nic0", "--speed", "1G", "--folder", "/proc/x"), "drakit: --folder: cannot use /proc/x: "),
    ],
    ids=[
        "unknown",
        "no speed",
        "slow",
        "no rate",
        "loopback",
        "down",
        "no link",
        "foreign qdisc",
        "mock too",
        "no nic",
        "folder in use",
        "no folder",
    ],
)
def test_what_cannot_begin_says_why_in_one_line_and_changes_nothing(
    host: Host, made: tuple[str, ...], given: tuple[str, ...], message: str
) -> None:
    if made:
        host.space.run(*made)
    before = host.space.settled_state() if made else host.space.state()
    folder = () if "--folder" in given or "--nic" not in given else ("--folder", str(host.place))
    ran = host.finished("demo", *given, *folder)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(message)
    assert ran.stderr.count("\n") == 1
    assert host.space.state() == before


def test_it_needs_root(host: Host) -> None:
    before = host.space.state()
    prefix = ["ip", "netns", "exec", host.space.name, *demo.as_ordinary_user()[0]]
    ran = demo.finished(host.folder, "demo", "--nic", "nic0", "--speed", "1G", prefix=prefix)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.match(r"drakit: --nic: (needs root: |nic0 cannot be shared: this kernel .* and root privileges\n$)", ran.stderr)
    assert host.space.state() == before
