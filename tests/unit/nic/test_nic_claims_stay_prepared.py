"""A share that is prepared keeps its class while its NIC is renamed, replaced or pulled, and while the attach client of its hook is deleted."""

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterator

import pytest

from drakit import machines, testing
from drakit.core import driver as drivers
from drakit.core import edits, lifecycle
from drakit_nic import driver as nic_driver
from drakit_nic import mock_port, port
from drakit_nic.attach import service

NIC = "pci-0000-0c-00-0"


class Machine(mock_port.MockPort):
    """A machine whose interfaces can be changed, and that says what was taken away from whom."""

    change: Callable[[port.Interface], port.Interface | None] = staticmethod(lambda item: item)

    def interfaces(self, own_namespaces: Callable[[], Collection[int]] = tuple) -> tuple[port.Interface, ...]:
        return tuple(changed for interface in super().interfaces(own_namespaces) if (changed := self.change(interface)) is not None)

    def interface(self, name: str) -> port.Interface | None:
        return next((interface for interface in self.interfaces() if interface.name == name), None)

    def remove(self, share_id: str, hint: port.Share | None = None) -> None:
        self.removed = (*getattr(self, "removed", ()), (share_id, hint))
        super().remove(share_id, hint)


class Attachment(service.Service):
    """Attachment without a kernel: only which client a hook names."""

    client = "attach-old"

    home = None  # type: ignore[assignment] # it has no files

    def __init__(self) -> None:
        """Nothing to open."""

    def missing(self) -> str:
        return ""

    def client_for(self, record: object) -> str:
        return self.client

    def hook(self, name: str, grant: drivers.Grant[object]) -> edits.Hook:
        return edits.Hook(name=edits.HookName.CREATE_RUNTIME, path=f"/hooks/{name}", args=("attach", grant.device.name))

    def detach(self, grant: drivers.Grant[object], share_id: str) -> None:
        """Nothing was attached."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    node: testing.Node
    machine: Machine
    attachment: Attachment


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    machine, attachment = Machine(machines.Choice(name="dgx-a100-40gb", directory=tmp_path)), Attachment()

    class Nics(nic_driver.NicDriver):
        def start(self, context: object) -> None:
            """No keeper and no sockets: nothing runs beside the verbs."""

        def stop(self) -> None:
            """Nothing was started."""

    with testing.Node(lambda: Nics(machine, node="node-1", attachment=attachment)) as node:
        yield Place(node=node, machine=machine, attachment=attachment)


def renamed(interface: port.Interface) -> port.Interface:
    return dataclasses.replace(interface, name="lan") if interface.name == "eth1" else interface


def replaced(interface: port.Interface) -> port.Interface:
    return dataclasses.replace(interface, ifindex=77) if interface.name == "eth1" else interface


def pulled(interface: port.Interface) -> port.Interface | None:
    return None if interface.name == "eth1" else interface


@pytest.mark.parametrize("change, field, value", [(renamed, "interface", "lan"), (replaced, "ifIndex", 77)])
def test_a_nic_that_was_renamed_or_replaced_keeps_the_claims_share(
    place: Place, change: Callable[[port.Interface], port.Interface], field: str, value: object
) -> None:
    ref = place.node.claim(NIC, consumed={"bandwidth": "1G"})
    place.node.prepare(ref)
    (before,) = place.machine.shares()
    place.machine.change = change
    place.node.restart()
    place.node.prepare(ref)
    assert not hasattr(place.machine, "removed"), "the class of a running pod was taken away"
    (after,) = place.machine.shares()
    assert (after.id, after.minor, after.mac) == (before.id, before.minor, before.mac)
    (entry,) = place.node.entries
    assert entry.state is lifecycle.State.PREPARED
    assert entry.grants[0].record[field] == value
    place.node.unprepare(ref)
    ((_, hint),) = place.machine.removed
    assert hint == after, "it is removed from where it is now"
    assert place.node.is_clean
    assert not place.machine.shares()


def test_a_deleted_attach_client_gives_way_to_the_present_one_and_the_share_stays(place: Place) -> None:
    ref = place.node.claim(NIC, consumed={"bandwidth": "1G"})
    place.node.prepare(ref)
    place.attachment.client = "attach-new"
    place.node.restart()
    place.node.prepare(ref)
    assert not hasattr(place.machine, "removed")
    assert len(place.machine.shares()) == 1
    (entry,) = place.node.entries
    assert entry.grants[0].record[service.RECORDED] == "attach-new"
    (file,) = (place.node.folder / "cdi").glob("*.json")
    assert "/hooks/attach-new" in file.read_text("utf-8")


def test_a_nic_that_was_pulled_is_refused_and_the_claim_stays_prepared(place: Place) -> None:
    ref = place.node.claim(NIC, consumed={"bandwidth": "1G"})
    container = place.node.prepare(ref)
    place.machine.change = pulled
    place.node.restart()
    error = place.node.try_prepare(ref).error
    assert error.startswith(f"{NIC}: the interface eth1 is no longer there; plug the NIC in")
    assert "; the claim stays prepared" in error
    assert not hasattr(place.machine, "removed")
    assert place.node.container(container.cdi_ids) == container
    place.machine.change = staticmethod(lambda item: item)
    place.node.restart()
    assert place.node.prepare(ref) == container, "and it is whole again when the NIC is back"
