"""The DHCP client runs busybox's program with the driver's script, here a program in its place that calls the script as busybox does."""

import concurrent.futures
import pathlib
import threading
import time

import pytest

from drakit.core import errors
from drakit_nic.addresses import dhcp
from drakit_nic.attach import server

LEASE = dhcp.Offer(address="10.66.0.50/24", seconds=120, server="10.66.0.1")
LOOPBACK = 1
PROGRAM = """#!/bin/sh
while [ "$1" != -s ]; do shift; done
ip=10.66.0.50 mask=24 lease=120 serverid=10.66.0.1 exec "$2" bound
"""


@pytest.fixture
def program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The program ``udhcpc``, which gets a lease at once."""
    path = tmp_path / "bin" / "udhcpc"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    path.chmod(0o700)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    return path


@pytest.mark.usefixtures("program")
def test_pods_that_start_together_all_get_a_lease_from_a_new_folder(tmp_path: pathlib.Path) -> None:
    together = 16
    with concurrent.futures.ThreadPoolExecutor(together) as threads:
        for number in range(15):
            folder = tmp_path / str(number)
            folder.mkdir()
            client, barrier = dhcp.Udhcpc(folder, lambda work: work()), threading.Barrier(together)

            def lease(client: dhcp.Udhcpc = client, barrier: threading.Barrier = barrier) -> dhcp.Offer:
                barrier.wait()
                return client.request(LOOPBACK, "00aa", lambda: True)

            assert [each.result() for each in [threads.submit(lease) for _ in range(together)]] == [LEASE] * together
            assert [path.name for path in folder.iterdir()] == ["dhcp-lease"]


@pytest.mark.usefixtures("program")
def test_a_nic_that_is_gone_is_an_error_with_the_fix(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.HardwareError, match=r"no interface with index 99999: the NIC was replaced .*; delete the pod and its claim"):
        dhcp.Udhcpc(tmp_path, lambda work: work()).request(99999, "00aa", lambda: True)


def test_a_caller_that_leaves_gets_no_error_of_a_silent_server(tmp_path: pathlib.Path, program: pathlib.Path) -> None:
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    until = time.monotonic() + 0.3
    with pytest.raises(errors.CallerGoneError, match="nobody waits any longer for the DHCP lease on lo") as caught:
        dhcp.Udhcpc(tmp_path, lambda work: work()).request(LOOPBACK, "00aa", lambda: time.monotonic() < until)
    assert server.reason_of(caught.value) is server.Reason.TOO_LATE
