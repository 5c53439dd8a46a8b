"""A pod for tests of what the NIC driver does in its namespace: a namespace of the real kernel."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator

from drakit_nic import pod_interfaces
from drakit_nic.passthrough import kernel_pods
from fakes import netns

NIC_MAC = "02:00:00:00:00:20"


@dataclasses.dataclass(frozen=True)
class PodBench:
    """A node with the NIC ``nic0`` (MTU 9000, alias "of the admin", 10.7.0.1/24), one pod, and its child ``net1``."""

    pods: "KernelPods"
    namespace: int
    node: netns.Namespace
    pod: netns.Namespace

    @property
    def child(self) -> pod_interfaces.InterfaceRef:
        return pod_interfaces.InterfaceRef(namespace=self.namespace, name="net1")


class KernelPods(kernel_pods.KernelPods):
    """The kernel's pods alone, without the rest of the port."""

    def __init__(self, namespace: str, after_effect: Callable[[], None] = lambda: None) -> None:
        self._namespace = namespace
        self._after_effect = after_effect


@contextlib.contextmanager
def on_kernel(after_effect: Callable[[], None] = lambda: None, *, queues: int = 1) -> Iterator[PodBench]:
    with netns.namespace() as node, contextlib.ExitStack() as stack:
        pod = stack.enter_context(netns.namespace())
        node.make_nic("nic0", mac=NIC_MAC, mtu=9000, queues=queues)
        child = ("address", "02:aa:00:00:00:01", "mtu", "1500", "type", "macvlan")
        node.ip_batch(
            ("link", "set", "nic0", "alias", "of the admin"),
            ("address", "add", "10.7.0.1/24", "dev", "nic0"),
            ("link", "add", "net1", "link", "nic0-wire", "netns", pod.name, *child),
        )
        pod.ip("link", "set", "lo", "up")
        descriptor = os.open(pod.path, os.O_RDONLY)
        try:
            yield PodBench(KernelPods(node.name, after_effect), descriptor, node, pod)
        finally:
            os.close(descriptor)
