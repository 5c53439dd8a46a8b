"""Flows of one sandbox get equal parts of its share, on kernels that have a fair queue (fq_codel); on others their queue stays a FIFO."""

import pytest

from drakit_nic import kernel_port
from fakes import netns
from fakes.nic_samples import share, uplink

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

MEMBER = "02:aa:00:00:00:01"


def queue(own: netns.Namespace, handle: str = "8000:") -> str:
    (line,) = (line for line in own.run("tc", "qdisc", "show", "dev", "nic0").splitlines() if line.split()[2] == handle)
    return line


def test_a_queue_is_fair_where_the_kernel_can_and_a_fifo_elsewhere(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    nics.admit(share(own), cookie=7001, mac=MEMBER)
    assert queue(own).split()[1] == ("fq_codel" if nics.shaping().fair_queues else "bfifo")
    assert nics.check(uplink(own), [share(own)]) == ()
