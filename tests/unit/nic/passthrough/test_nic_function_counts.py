"""``nic.sriov``: how many virtual functions a NIC has, when the driver changes that, and what forbids it."""

import contextlib
import dataclasses
import errno
import pathlib
import typing
from collections.abc import Callable, Iterable, Iterator

import pydantic
import pytest

import drakit
from drakit.core import errors, records
from drakit_nic import kernel_port, port
from drakit_nic import options as nic_options
from drakit_nic.passthrough import function_counts, sriov
from fakes import log_lines, sriov_parent

PARENT = sriov_parent.PARENT
FIRST = "0000:01:10.0"


class DiedError(BaseException):
    """The process died here."""


class Locks:
    """A context of which the driver needs the device locks, its folder and the boot; ``held`` are the names that somebody else holds."""

    def __init__(self, data_dir: pathlib.Path) -> None:
        self.data_dir, self.boot_id = data_dir, "boot-1"
        self.asked: list[list[str]] = []
        self.held: set[str] = set()
        self.inside: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] | None = None) -> Iterator[None]:
        del wanted
        self.asked.append(list(lock_names))
        if self.held & set(self.asked[-1]):
            raise errors.LockedError("held", lock=min(self.held))
        self.inside()
        yield

    @property
    def context(self) -> drakit.DriverContext:
        return typing.cast("drakit.DriverContext", self)


@pytest.fixture
def locks(tmp_path: pathlib.Path) -> Locks:
    return Locks(tmp_path)


def wanting(vfs: int, match: str = "driver:igb") -> nic_options.NicOptions:
    return nic_options.NicOptions(sriov=(nic_options.SriovRule(match=match, vfs=vfs),))


def counts(
    bus: sriov_parent.Bus, vfs: int = 4, *, intents: Iterable[records.Record] = (), match: str = "driver:igb"
) -> function_counts.FunctionCounts:
    return function_counts.FunctionCounts(bus, wanting(vfs, match), lambda: intents)


def whole(interface: port.Interface) -> records.Record:
    """The intent of a claim that has an interface whole."""
    former = {"name": interface.name, "mac": interface.mac, "mtu": 1500, "up": False}
    return records.freeze_record({"whole": {"mark": "drakit:1", "interface": dataclasses.asdict(interface), "former": former}})


def test_a_nic_without_functions_gets_them_at_the_start(locks: Locks) -> None:
    bus = sriov_parent.Bus()
    counts(bus).ensure(locks.context, at_start=True)
    assert bus.written == [4]
    assert len(bus.functions) == 4
    assert "pci-0000-01-00-0" in locks.asked[0]


def test_a_nic_that_has_its_number_is_left_alone(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=4)
    counts(bus).ensure(locks.context, at_start=True)
    assert (bus.written, locks.asked) == ([], [])


def test_a_nic_that_no_rule_names_keeps_its_functions(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    counts(bus, match="eth*").ensure(locks.context, at_start=True)
    assert (bus.written, len(bus.functions)) == ([], 3)


def test_functions_that_nobody_uses_are_replaced_under_their_locks(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    counts(bus).ensure(locks.context, at_start=True)
    assert bus.written == [0, 4]
    assert {"pci-0000-01-00-0", "pci-0000-01-10-0", "pci-0000-01-10-2", "pci-0000-01-10-4"} <= set(locks.asked[0])


def test_after_the_start_a_number_above_zero_is_never_changed(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    counts(bus).ensure(locks.context, at_start=False)
    assert (bus.written, len(bus.functions)) == ([], 3)


def test_functions_are_created_again_after_a_reset_of_the_nic(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=4)
    claimed = counts(bus, intents=[whole(bus.functions[0])])
    claimed.ensure(locks.context, at_start=True)
    bus.functions.clear()
    claimed.ensure(locks.context, at_start=False)
    assert len(bus.functions) == 4, "also where a claim has one, whose pod gets it back"


def claimed_whole(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    return [whole(bus.functions[0])]


def claimed_and_in_a_pod(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    bus.away.add(FIRST)
    return [whole(bus.functions[0])]


def with_a_share(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    return [records.freeze_record({"id": "s1", "ifIndex": bus.functions[0].ifindex, "minor": 256})]


def at_vfio(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    bus.away.add(FIRST)
    bus.drivers[FIRST] = "vfio-pci"
    return ()


def moved_by_somebody_else(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    bus.away.add(FIRST)
    return ()


def bound_to_another_program(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    bus.away.add(FIRST)
    bus.drivers[FIRST] = "uio_pci_generic"
    return ()


def of_the_host(**changes: typing.Any) -> Callable[[sriov_parent.Bus], Iterable[records.Record]]:
    def change(bus: sriov_parent.Bus) -> Iterable[records.Record]:
        bus.functions[0] = dataclasses.replace(bus.functions[0], **changes)
        return ()

    return change


def below_a_vlan(bus: sriov_parent.Bus) -> Iterable[records.Record]:
    lower = bus.functions[0].ifindex
    bus.others.append(port.Interface(ifindex=99, name="vlan7", mac="02:00:00:00:00:00", mtu=1500, kind="vlan", lower=lower))
    return ()


@pytest.mark.parametrize(
    "use,said",
    [
        (claimed_whole, "has a claim; delete the pods of its claim"),
        (claimed_and_in_a_pod, "has a claim; delete"),
        (with_a_share, "has a claim; delete"),
        (at_vfio, "is bound to vfio-pci; end its virtual machine"),
        (moved_by_somebody_else, "has its interface in another place, such as a pod; return it"),
        (bound_to_another_program, "has its interface in another place"),
        (of_the_host(addressed=True), "(enp1s0v0) has an address of the host; end that use"),
        (of_the_host(default_route=True), "(enp1s0v0) carries the host's default route"),
        (of_the_host(used="has a route of the host (10.0.0.0/8)"), "(enp1s0v0) has a route of the host"),
        (of_the_host(master=7), "(enp1s0v0) belongs to another interface"),
        (of_the_host(up=True, state="up"), "(enp1s0v0) is up; run: ip link set enp1s0v0 down"),
        (of_the_host(up=True, state="down", carrier=False), "(enp1s0v0) is up; run: ip link set enp1s0v0 down"),
        (below_a_vlan, "(enp1s0v0) carries the host's vlan7 (vlan)"),
    ],
)
def test_a_function_in_use_keeps_its_parent_s_number(
    locks: Locks, use: Callable[[sriov_parent.Bus], Iterable[records.Record]], said: str, logged: log_lines.LogLines
) -> None:
    bus = sriov_parent.Bus(count=3)
    intents = use(bus)
    before = list(bus.functions)
    node = counts(bus, intents=intents)
    node.ensure(locks.context, at_start=True)
    assert (bus.written, bus.functions) == ([], before)
    (finding,) = node.findings()
    assert finding.verdict is drakit.Verdict.WARNING
    assert finding.message.startswith("nic.sriov[0].vfs: enp1s0 has 3 virtual functions, not 4, and 0000:01:10.0 ")
    assert said in f"{finding.message}; {finding.fix}"
    assert finding.fix.endswith(", and restart the driver; or set vfs to 3")
    (line,) = [line for line in logged.lines if line["event"] == "virtual functions not created"]
    assert (line["interface"], line["fix"]) == ("enp1s0", finding.fix)
    assert line["reason"].startswith("nic.sriov[0].vfs: has 3 virtual functions")


def test_a_claim_that_is_prepared_while_the_driver_waits_for_the_lock_counts(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    intents: list[records.Record] = []
    locks.inside = lambda: intents.append(whole(bus.functions[1]))
    counts(bus, intents=intents).ensure(locks.context, at_start=True)
    assert bus.written == []


def test_a_claim_in_the_middle_of_its_prepare_keeps_the_number(locks: Locks, logged: log_lines.LogLines) -> None:
    bus = sriov_parent.Bus(count=3)
    locks.held = {"pci-0000-01-10-2"}
    counts(bus).ensure(locks.context, at_start=True)
    assert bus.written == []
    (line,) = [line for line in logged.lines if line["event"] == "virtual functions not created"]
    assert "a claim that is being prepared" in line["reason"]


def test_functions_without_a_driver_are_free(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    bus.away.add(FIRST)
    bus.drivers[FIRST] = ""
    counts(bus).ensure(locks.context, at_start=True)
    assert bus.written == [0, 4]


def test_a_nic_that_one_claim_has_whole_gets_no_functions_until_the_claim_ends(locks: Locks) -> None:
    bus = sriov_parent.Bus()
    intents = [whole(PARENT)]
    node = counts(bus, intents=intents)
    node.ensure(locks.context, at_start=True)
    assert bus.written == []
    intents.clear()
    node.ensure(locks.context, at_start=False)
    assert bus.written == [4]


@pytest.mark.parametrize("dies_after", [1, 2])
def test_a_driver_that_dies_after_a_write_is_completed_by_the_next_one(locks: Locks, dies_after: int) -> None:
    left = iter(range(dies_after))

    def die() -> None:
        if next(left, None) == dies_after - 1:
            raise DiedError

    bus = sriov_parent.Bus(count=3, after_effect=die)
    with pytest.raises(DiedError):
        counts(bus).ensure(locks.context, at_start=True)
    assert len(bus.functions) == (0 if dies_after == 1 else 4)
    counts(bus).ensure(locks.context, at_start=True)
    assert len(bus.functions) == 4


def test_more_functions_than_the_nic_can_have_are_an_error_of_the_setting(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    node = counts(bus, 8)
    node.ensure(locks.context, at_start=True)
    (finding,) = node.findings()
    assert bus.written == []
    assert finding.message == "nic.sriov[0].vfs: enp1s0 can have 7 virtual functions (sriov_totalvfs), not 8"
    assert finding.fix == "set vfs to 7 or less"


def test_a_nic_without_sriov_is_named(locks: Locks) -> None:
    bus = sriov_parent.Bus()
    bus.parent = dataclasses.replace(PARENT, pci=port.PciFunction(bus_id="0000:01:00.0"))
    node = counts(bus)
    node.ensure(locks.context, at_start=True)
    assert bus.written == []
    assert [finding.message for finding in node.findings()] == ["nic.sriov[0].vfs: enp1s0 has no SR-IOV (sriov_totalvfs)"]


def test_what_the_kernel_refuses_is_logged_once_and_tried_again_after_longer_pauses(locks: Locks, logged: log_lines.LogLines) -> None:
    bus = sriov_parent.Bus()
    bus.refusal = "the kernel refuses 4 in sriov_numvfs (Read-only file system); give the driver's container a writable /sys/devices"
    now, tried = 0.0, []
    node = function_counts.FunctionCounts(bus, wanting(4), tuple, monotonic=lambda: now)
    while now < 6 * 3600:
        before = len(bus.written)
        node.ensure(locks.context, at_start=False)
        tried += [now] * (len(bus.written) - before)
        now += 30
    assert tried == [0, 60, 180, 420, 900, 1860, 3780, 7380, 10980, 14580, 18180]
    assert set(bus.written) == {4}
    (line,) = [line for line in logged.lines if line["event"] == "virtual functions not created"]
    assert bus.refusal in line["reason"]
    bus.refusal = ""
    now += 3600
    node.ensure(locks.context, at_start=False)
    node.ensure(locks.context, at_start=False)
    bus.functions.clear()
    bus.written.clear()
    node.ensure(locks.context, at_start=False)
    assert bus.written == [4], "a reset after a success is repaired without a pause"
    (finding,) = node.findings()
    assert (finding.verdict, finding.message) == (drakit.Verdict.OK, "has 4 virtual functions (nic.sriov[0].vfs)")


def test_where_the_machine_has_no_room_for_a_number_the_former_one_is_restored(locks: Locks, logged: log_lines.LogLines) -> None:
    bus = sriov_parent.Bus(count=3)
    bus.room = 4
    counts(bus, 6).ensure(locks.context, at_start=True)
    assert (bus.written, len(bus.functions)) == ([0, 6, 3], 3)
    (line,) = logged.lines
    assert line["reason"] == "nic.sriov[0].vfs: did not get 6 virtual functions: set_function_count: Cannot allocate memory"


def test_functions_are_removed_in_vain_once_in_a_boot(locks: Locks, logged: log_lines.LogLines) -> None:
    bus = sriov_parent.Bus(count=3)
    bus.room = 4
    for _ in range(3):
        counts(bus, 6).ensure(locks.context, at_start=True)
    assert bus.written == [0, 6, 3]
    assert logged.lines[-1]["reason"] == "nic.sriov[0].vfs: has 3 virtual functions, and the machine refused 6 in this boot"
    assert logged.lines[-1]["fix"].startswith("set vfs to 3; or reboot; or remove the functions")
    counts(bus, 4).ensure(locks.context, at_start=True)
    assert bus.written == [0, 6, 3, 0, 4], "another number is tried"
    locks.boot_id, bus.room = "boot-2", 7
    counts(bus, 6).ensure(locks.context, at_start=True)
    assert bus.written[5:] == [0, 6], "after a reboot the number is tried again"


def test_a_number_that_was_refused_is_tried_again_once_the_functions_are_gone(locks: Locks) -> None:
    bus = sriov_parent.Bus(count=3)
    bus.room = 4
    counts(bus, 6).ensure(locks.context, at_start=True)
    bus.functions.clear()
    bus.room = 7
    counts(bus, 6).ensure(locks.context, at_start=True)
    counts(bus, 3).ensure(locks.context, at_start=True)
    counts(bus, 6).ensure(locks.context, at_start=True)
    assert bus.written == [0, 6, 3, 6, 0, 3, 0, 6], "a success ends the refusal"


def test_a_record_of_refused_numbers_that_cannot_be_read_stops_nothing(locks: Locks) -> None:
    (locks.data_dir / function_counts.REFUSED_FILE).write_text('{"boot": "boot-1", "numbers"')
    bus = sriov_parent.Bus(count=3)
    counts(bus).ensure(locks.context, at_start=True)
    assert bus.written == [0, 4]


def test_doctor_says_what_a_driver_that_was_not_restarted_has_not_done_yet() -> None:
    (finding,) = counts(sriov_parent.Bus()).findings()
    assert finding.message == "nic.sriov[0].vfs: enp1s0 has 0 virtual functions, not 4"
    assert finding.fix.startswith("restart the driver")


def test_the_first_rule_that_matches_counts(locks: Locks) -> None:
    bus = sriov_parent.Bus()
    rules = (nic_options.SriovRule(match="enp1*", vfs=2), nic_options.SriovRule(match="*", vfs=5))
    function_counts.FunctionCounts(bus, nic_options.NicOptions(sriov=rules), tuple).ensure(locks.context, at_start=True)
    assert bus.written == [2]


@pytest.mark.parametrize("vfs", [0, -1, 65536])
def test_a_rule_wants_at_least_one_function(vfs: int) -> None:
    with pytest.raises(pydantic.ValidationError, match="vfs"):
        nic_options.SriovRule(match="*", vfs=vfs)


@pytest.fixture
def devices(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder /sys/bus/pci/devices of a machine with one physical function that has ten virtual ones."""
    (tmp_path / "drivers/igbvf").mkdir(parents=True)
    parent = tmp_path / PARENT.pci.bus_id if PARENT.pci else tmp_path
    parent.mkdir()
    (parent / "sriov_numvfs").write_text("10\n")
    for number in range(10):
        function = tmp_path / f"0000:01:10.{number}"
        function.mkdir()
        (parent / f"virtfn{number}").symlink_to(function)
    (tmp_path / FIRST / "driver").symlink_to(tmp_path / "drivers/igbvf")
    return tmp_path


def test_functions_are_read_in_the_order_of_their_numbers_with_their_driver(devices: pathlib.Path) -> None:
    read = sriov.bus_functions("0000:01:00.0", devices)
    assert [function.bus_id for function in read] == [f"0000:01:10.{number}" for number in range(10)]
    assert [function.driver for function in read] == ["igbvf", *[""] * 9]
    assert sriov.bus_functions("0000:09:00.0", devices) == ()


def test_the_number_is_written_and_a_file_that_is_not_there_is_not_created(devices: pathlib.Path) -> None:
    sriov.write_count("0000:01:00.0", 4, devices)
    assert (devices / "0000:01:00.0/sriov_numvfs").read_text().startswith("4")
    with pytest.raises(
        OSError, match=r"refuses 4 in .*/0000:01:10.0/sriov_numvfs \(No such file.*use the NIC's own kernel driver"
    ) as raised:
        sriov.write_count(FIRST, 4, devices)
    assert raised.value.errno == errno.ENOENT
    assert not (devices / FIRST / "sriov_numvfs").exists()


def test_the_kernel_s_port_names_the_call_that_failed() -> None:
    machine = kernel_port.KernelPort()
    try:
        assert machine.functions_of("ffff:ff:1f.7") == ()
        with pytest.raises(errors.HardwareError, match=r"set_function_count: the kernel refuses 1 in /sys/bus/pci/devices/ffff:ff:1f.7"):
            machine.set_function_count("ffff:ff:1f.7", 1)
    finally:
        machine.close()
