"""The mock machine's PCI bus keeps the contract. tests/vm/test_vfio_bus.py has the kernel's."""

import pathlib

import pytest

from contract import vfio_bus_contract
from drakit import vfio
from drakit.vfio import mock


class TestMockBus(vfio_bus_contract.BusContract):
    @pytest.fixture
    def bench(self, tmp_path: pathlib.Path) -> vfio_bus_contract.Bench:
        functions = [
            vfio.Function(address="0000:00:03.0", driver="pcieport", group=3, code=0x060400),
            vfio.Function(address="0000:01:10.0", driver="igbvf", group=8, code=0x020000, vendor="8086"),
        ]
        return vfio_bus_contract.Bench(mock.MockBus(tmp_path, functions), "0000:01:10.0", "igbvf")
