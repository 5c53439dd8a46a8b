"""A call that fails before its grant is read is logged and counted like any other."""

import pathlib
import socket
import tempfile

import pytest

from drakit import machines
from drakit.core import driver as drivers
from drakit.core import errors, names
from drakit.testing import fake_context
from drakit_nic import mock_port
from drakit_nic.attach import sandboxes, server, service
from fakes import exhaustion, log_lines, waits

pytestmark = pytest.mark.root

UID = "00000000-0000-4000-8000-000000000001"


class Unreadable(fake_context.FakeContext):
    """A context whose journal cannot be read."""

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> drivers.Grant[object] | None:
        raise errors.JournalError(f"cannot read {uid}, {device}, {share_id}: disk I/O error")


def test_a_journal_that_cannot_be_read_is_logged_and_counted(logged: log_lines.LogLines) -> None:
    with exhaustion.nothing_left(), tempfile.TemporaryDirectory(prefix="drk-", dir="/tmp") as made:
        home = pathlib.Path(made)
        machine = mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=home))
        attachment = service.Service(home, machine, sandboxes.KernelSandboxes(), node="node-1")
        attachment.start(Unreadable(home), tuple)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client, pathlib.Path("/proc/self/ns/net").open("rb") as own:
                client.settimeout(waits.SECONDS)
                client.connect(str(home / service.SOCKET))
                socket.send_fds(client, [f"attach 1\n{UID}\nnic0\n{UID}\nc1\n5a4d\n{UID}".encode()], [own.fileno()])
                assert b"disk I/O error" in client.recv(4096)
            counts = {metric.labels.get("reason"): metric.value for metric in attachment.readings()}
            assert counts[server.Reason.OTHER.value] == 1
        finally:
            attachment.stop()
    (record,) = logged.lines
    assert (record["event"], record["claim_uid"]) == ("attach refused", UID)
