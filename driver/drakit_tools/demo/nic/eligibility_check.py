"""Checks whether the demo may use an interface: the driver's rules and some more. It changes nothing.

Each refusal is a SettingsError with the fix. An interface that the host itself uses is refused without ``--yes-take-over``.
"""

import dataclasses
import glob
import os
import pathlib
import socket

from drakit import settings as values
from drakit.cli import options
from drakit.core import errors, quantity
from drakit_nic import driver as nic_driver
from drakit_nic import kernel_port, port
from drakit_nic import settings as nic_settings
from drakit_nic.attach import service
from drakit_nic.discovery import eligibility, offers
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import parts
from drakit_tools.demo.nic import figures, saved_state

_SPEED_FIX = "add --speed RATE, for example --speed 1G"
_SPEED_MAX = 10**15
_ANY = nic_settings.BandwidthPolicy(default=quantity.ONE, min=quantity.ONE, step=quantity.ONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The command's options."""

    interface: str
    speed: str | None = None
    folder: pathlib.Path | None = None
    traffic: bool = False
    take_over: bool = False
    keep: bool = False
    restore: bool = False

    @property
    def place(self) -> saved_state.StateFolder:
        """Return the folder of the demo's files."""
        return saved_state.StateFolder.of(self.interface, self.folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedInterface:
    """An interface that may be used: ``used_by_host`` says how the host uses it, empty where it does not."""

    interface: port.Interface
    figures: figures.Figures
    classifier: port.Classifier
    used_by_host: str = ""


def check_rights() -> None:
    """Raise SettingsError unless the user is root."""
    if os.geteuid() != 0:
        raise errors.SettingsError(
            "needs root, because it changes the queueing of a real interface; drakit demo without --nic does not", key="--nic"
        )


def find(machine: kernel_port.KernelPort, name: str) -> port.Interface:
    """Return the interface of this name; raises SettingsError with the closest name."""
    interface = machine.interface(name)
    if interface is None:
        present = [interface.name for interface in machine.interfaces() if interface.kind != port.LOOPBACK]
        raise errors.SettingsError(f"there is no interface {name!r}; {options.meant(name, present)}", key="--nic")
    return interface


def survey(machine: kernel_port.KernelPort, options: DemoOptions) -> CheckedInterface:
    """Return the interface if the demo may use it; raises SettingsError, HardwareError."""
    interface = find(machine, options.interface)
    shaping = machine.shaping()
    if shaping.missing:
        raise errors.SettingsError(f"{options.interface} cannot be shared: {shaping.missing}", key="--nic")
    _check_unshared(interface)
    unasked, asked = (_verdict(machine, options, take_over=take_over) for take_over in (False, True))
    if isinstance(asked, str):
        raise errors.SettingsError(f"{options.interface} {asked}", key="--nic")
    numbers = figures.Figures.of(asked.speed)
    used = unasked if isinstance(unasked, str) else ""
    if used and not options.take_over:
        limit = f"the demo would limit the host's own traffic through it to {figures.rate(numbers.reserve)} bit/s"
        raise errors.SettingsError(f"{options.interface} {used}: {limit}; to allow that, add --yes-take-over", key="--nic")
    if options.traffic and not interface.carrier:
        raise errors.SettingsError(f"{options.interface} has no link, so nothing can be sent; remove --traffic", key="--traffic")
    host_state = machine.host_state(options.interface)
    if host_state is None or not host_state.up:
        raise errors.SettingsError(
            f"{options.interface} is down, so its children cannot be up; run: ip link set {options.interface} up", key="--nic"
        )
    return CheckedInterface(interface=interface, figures=numbers, classifier=shaping.classifier, used_by_host=used)


def pattern(interface: str) -> str:
    """Return a glob that matches only this name."""
    return glob.escape(interface)


def _verdict(machine: kernel_port.KernelPort, options: DemoOptions, *, take_over: bool) -> offers.Nic | str:
    """Return what is offered of the interface, or why it is not offered. The host has a reserve here too."""
    match = pattern(options.interface)
    rule = nic_settings.InterfaceRule(match=match, speed=_speed(options), reserve=quantity.ONE)
    chosen = nic_settings.NicSettings(include=(match,), take_over=(match,) if take_over else (), policy=_ANY, interfaces=(rule,))
    surveyed = offers.survey(machine.interfaces(), chosen)
    offered = next((nic for nic in surveyed.nics if nic.interface.name == options.interface), None)
    return offered or next(_why(withheld.refusal) for withheld in surveyed.withheld if withheld.name == options.interface)


def _why(refusal: eligibility.Refusal) -> str:
    """Return the reason, with the option that sets the speed if that is missing."""
    return f"{refusal.reason}; {_SPEED_FIX}" if refusal.is_of_speed else refusal.reason


def _speed(options: DemoOptions) -> quantity.Quantity | None:
    """Return the given speed; raises SettingsError if it is no rate."""
    if options.speed is None:
        return None
    try:
        speed = quantity.Quantity.parse(options.speed)
    except errors.QuantityError as error:
        raise errors.SettingsError(error.reason, key="--speed") from error
    if not 0 < speed.value <= _SPEED_MAX:
        raise errors.SettingsError(f"{options.speed} is not a rate in bits per second, such as 1G", key="--speed")
    return quantity.Quantity.of(speed.value)


def _check_unshared(interface: port.Interface) -> None:
    """Raise SettingsError if a driver shares the interface already: the two would undo each other's work."""
    with rtnetlink.Socket.open() as sock:
        if parts.find(sock, interface.ifindex).any_of_ours:
            reason = f"{interface.name} carries shares of a drakit driver, which the demo would remove; choose another interface"
            raise errors.SettingsError(reason, key="--nic")
    home = values.load({}, environ={}).node.plugins_dir / nic_driver.NAME
    if _listens(home / service.SOCKET):
        reason = f"the driver {nic_driver.NAME} runs on this node ({home}) and would remove the demo's shares; stop it first"
        raise errors.SettingsError(reason, key="--nic")


def _listens(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
        return True
