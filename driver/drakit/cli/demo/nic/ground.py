"""Whether the demo may use an interface, by the driver's own verdict and some of its own; pure reads.

Raises SettingsError in one line that says what to do. An interface that the host uses itself is refused unless the user said that it may be taken
over.
"""

import dataclasses
import glob
import os
import pathlib
import socket

from drakit import settings as values
from drakit.cli import options
from drakit.cli.demo.nic import figures, note
from drakit.core import errors, quantity
from drakit.devices.nic import driver as nic_driver
from drakit.devices.nic import kernel_port, port
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic.attach import service
from drakit.devices.nic.discovery import eligibility, offers
from drakit.devices.nic.netlink import rtnetlink
from drakit.devices.nic.shaping import parts

_SPEED_FIX = "give it with --speed, for example --speed 1G"
_SPEED_MAX = 10**15
_ANY = nic_settings.BandwidthPolicy(default=quantity.ONE, min=quantity.ONE, step=quantity.ONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user typed."""

    interface: str
    speed: str | None = None
    folder: pathlib.Path | None = None
    traffic: bool = False
    take_over: bool = False
    keep: bool = False
    restore: bool = False

    @property
    def place(self) -> note.Place:
        """Where the demo keeps what it needs on disk."""
        return note.Place.of(self.interface, self.folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ground:
    """An interface that may be used: ``used_by_host`` says how the host uses it, empty where it does not."""

    interface: port.Interface
    figures: figures.Figures
    classifier: port.Classifier
    used_by_host: str = ""


def check_rights() -> None:
    """Raise SettingsError where nothing of the kernel could be changed."""
    if os.geteuid() != 0:
        raise errors.SettingsError("needs root: it changes the queueing of a real interface; drakit demo alone needs none", key="--nic")


def find(machine: kernel_port.KernelPort, name: str) -> port.Interface:
    """The interface of this name; raises SettingsError that says which was meant."""
    found = machine.interface(name)
    if found is None:
        known = [item.name for item in machine.interfaces() if item.kind != port.LOOPBACK]
        raise errors.SettingsError(f"there is no interface {name!r}; {options.meant(name, known)}", key="--nic")
    return found


def survey(machine: kernel_port.KernelPort, wish: Wish) -> Ground:
    """The interface, where the demo may use it; raises SettingsError, HardwareError."""
    interface = find(machine, wish.interface)
    shaping = machine.shaping()
    if shaping.missing:
        raise errors.SettingsError(f"{wish.interface} cannot be shared: {shaping.missing}", key="--nic")
    _check_unshared(interface)
    unasked, asked = (_verdict(machine, wish, take_over=take_over) for take_over in (False, True))
    if isinstance(asked, str):
        raise errors.SettingsError(f"{wish.interface} {asked}", key="--nic")
    found = figures.Figures.of(asked.speed)
    used = unasked if isinstance(unasked, str) else ""
    if used and not wish.take_over:
        held = f"the host's own traffic by it would be held to {figures.rate(found.reserve)} bit/s meanwhile"
        raise errors.SettingsError(f"{wish.interface} {used}: {held}; if that may be, add --yes-take-over", key="--nic")
    if wish.traffic and not interface.carrier:
        raise errors.SettingsError(f"{wish.interface} has no link, so nothing can be sent; leave it out", key="--traffic")
    host_state = machine.host_state(wish.interface)
    if host_state is None or not host_state.up:
        raise errors.SettingsError(
            f"{wish.interface} is down, and its children could not be set up: ip link set {wish.interface} up", key="--nic"
        )
    return Ground(interface=interface, figures=found, classifier=shaping.classifier, used_by_host=used)


def pattern(interface: str) -> str:
    """A glob that is this name only."""
    return glob.escape(interface)


def _verdict(machine: kernel_port.KernelPort, wish: Wish, *, take_over: bool) -> offers.Nic | str:
    """What is offered of the interface, or why it is not. The host is given a reserve here as it is later, where the speed is known."""
    match = pattern(wish.interface)
    rule = nic_settings.InterfaceRule(match=match, speed=_speed(wish), reserve=quantity.ONE)
    chosen = nic_settings.NicSettings(include=(match,), take_over=(match,) if take_over else (), policy=_ANY, interfaces=(rule,))
    found = offers.survey(machine.interfaces(), chosen)
    offered = next((nic for nic in found.nics if nic.interface.name == wish.interface), None)
    return offered or next(_why(item.refusal) for item in found.withheld if item.name == wish.interface)


def _why(refusal: eligibility.Refusal) -> str:
    """The reason, and where it is the speed, the option that gives one."""
    return f"{refusal.reason}; {_SPEED_FIX}" if refusal.is_of_speed else refusal.reason


def _speed(wish: Wish) -> quantity.Quantity | None:
    """The speed that was given; raises SettingsError for what is no rate."""
    if wish.speed is None:
        return None
    try:
        found = quantity.Quantity.parse(wish.speed)
    except errors.QuantityError as error:
        raise errors.SettingsError(error.reason, key="--speed") from error
    if not 0 < found.value <= _SPEED_MAX:
        raise errors.SettingsError(f"{wish.speed} is not a rate in bits per second, such as 1G", key="--speed")
    return quantity.Quantity.of(found.value)


def _check_unshared(interface: port.Interface) -> None:
    """Raise SettingsError where a driver shares the interface already: two would undo each other's work."""
    with rtnetlink.Socket.open() as sock:
        if parts.find(sock, interface.ifindex).any_of_ours:
            reason = f"{interface.name} carries shares of a drakit driver, and the demo would take them away; choose another interface"
            raise errors.SettingsError(reason, key="--nic")
    home = values.load({}, environ={}).node.plugins_dir / nic_driver.NAME
    if _listens(home / service.SOCKET):
        reason = f"the driver {nic_driver.NAME} is at work on this node ({home}), and would take the demo's shares away; stop it first"
        raise errors.SettingsError(reason, key="--nic")


def _listens(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
        return True
