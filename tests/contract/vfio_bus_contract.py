"""What every ``vfio.Bus`` does with a function that can be passed and that the test may use. ``bench`` is a fixture of each adapter's tests."""

import dataclasses
import re

import pytest

from drakit import vfio
from drakit.core import errors


@dataclasses.dataclass(frozen=True)
class Bench:
    """A bus, and a function of it that can be passed, with its driver."""

    bus: vfio.Bus
    address: str
    driver: str

    def state(self) -> tuple[str, str]:
        function = self.bus.function(self.address)
        assert function is not None
        return function.driver, function.override


class BusContract:
    """The tests of every adapter."""

    def test_a_function_is_listed_once_and_found_by_its_address(self, bench: Bench) -> None:
        addresses = [function.address for function in bench.bus.functions()]
        assert addresses == sorted(set(addresses))
        assert bench.bus.function(bench.address) in bench.bus.functions()
        assert bench.bus.function("ffff:ff:1f.7") is None

    def test_a_function_is_in_its_group(self, bench: Bench) -> None:
        function = bench.bus.function(bench.address)
        assert function is not None
        assert function.group is not None
        assert function in bench.bus.group(function.group)
        assert not function.is_bridge

    def test_it_has_its_driver_and_no_override(self, bench: Bench) -> None:
        assert bench.state() == (bench.driver, "")
        assert bench.bus.has_driver(bench.driver)
        assert bench.bus.has_driver("vfio-pci")
        assert not bench.bus.has_driver("no-such-driver")
        assert vfio.refusal(bench.bus, bench.address) is None

    def test_only_the_overriding_driver_binds_until_the_override_is_empty(self, bench: Bench) -> None:
        bus, address = bench.bus, bench.address
        bus.set_override(address, "no-such-driver")
        assert bench.state() == (bench.driver, "no-such-driver"), "an override alone changes no driver"
        bus.unbind(address)
        bus.probe(address)
        assert bench.state() == ("", "no-such-driver")
        bus.set_override(address, "vfio-pci")
        bus.probe(address)
        assert bench.state() == ("vfio-pci", "vfio-pci")
        bus.set_override(address, "")
        assert bench.state() == ("vfio-pci", "")
        bus.probe(address)
        assert bench.state() == ("vfio-pci", ""), "a probe changes no driver"
        bus.unbind(address)
        bus.reset(address)
        bus.probe(address)
        assert bench.state() == (bench.driver, "")

    def test_unbinding_and_probing_twice_changes_nothing_more(self, bench: Bench) -> None:
        for _ in range(2):
            bench.bus.unbind(bench.address)
            assert bench.state() == ("", "")
        for _ in range(2):
            bench.bus.probe(bench.address)
            assert bench.state() == (bench.driver, "")

    def test_a_bound_function_has_its_device_nodes_and_is_not_open(self, bench: Bench) -> None:
        planned = vfio.plan(bench.bus, bench.address)
        vfio.bind(bench.bus, planned)
        try:
            interface, group = vfio.nodes(bench.bus, planned)
            assert (interface.path, group.path) == ("/dev/vfio/vfio", f"/dev/vfio/{planned.group}")
            assert (interface.type, interface.major, interface.minor) == ("c", 10, 196)
            assert group.major
            assert not bench.bus.is_open(planned.group)
        finally:
            vfio.release(bench.bus, planned)
        assert bench.state() == (bench.driver, "")

    def test_a_change_of_a_missing_function_is_an_error(self, bench: Bench) -> None:
        with pytest.raises(errors.DrakitError, match=re.escape("ffff:ff:1f.7")):
            vfio.bind(bench.bus, vfio.Plan(boot=bench.bus.boot_id(), address="ffff:ff:1f.7", group=1, members=MISSING))


MISSING = (vfio.Member(address="ffff:ff:1f.7", driver="igbvf"),)
