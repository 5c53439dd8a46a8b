"""The pods of a mock machine: interfaces in namespaces that nobody sees, kept in memory.

It keeps the port's contract, but a mock machine runs no containers: the only pods are those that a test makes (``put``) and ends (``end``). What is
there is forgotten with the process, as the pods are.
"""

import dataclasses
import zlib
from collections.abc import Callable

from drakit.core import errors
from drakit.devices.nic import config, pod_interfaces, port
from drakit.devices.nic.passthrough import identity

Place = str | int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inhabitant:
    """An interface in a pod; ``former`` is what it was, where it is a whole one of the host, and ``mark`` its mark."""

    worn: pod_interfaces.Worn
    routes: tuple[config.Route, ...] = ()
    rules: tuple[config.Rule, ...] = ()
    mark: str = ""
    former: pod_interfaces.Former | None = None


class MockPods:
    """Pods of a machine whose interfaces are as ``interface`` says."""

    def __init__(self, interface: Callable[[str], port.Interface | None]) -> None:
        self._interface = interface
        self._inside: dict[tuple[Place, str], Inhabitant] = {}
        self._hosts: dict[str, pod_interfaces.Former] = {}

    def put(self, child: pod_interfaces.Child, *, mac: str, mtu: int = 1500) -> None:
        """A child appears in a pod, as the hook makes it: down and without addresses."""
        self._inside[child.namespace, child.name] = Inhabitant(worn=pod_interfaces.Worn(name=child.name, mac=mac, mtu=mtu, up=False))

    def end(self, namespace: Place) -> None:
        """A pod ends, and all that is in it: hardware comes back to the host as it was in the pod."""
        for key in [key for key in self._inside if key[0] == namespace]:
            gone = self._inside.pop(key)
            if gone.former is not None:
                worn = gone.worn
                self._hosts[gone.former.name] = pod_interfaces.Former(
                    name=worn.name, mac=worn.mac, mtu=worn.mtu, up=False, alias=gone.mark, identity=gone.former.identity
                )

    def is_away(self, name: str) -> bool:
        """Whether an interface of the host is in a pod."""
        return any(one.former is not None and one.former.name == name for one in self._inside.values())

    def dress(self, child: pod_interfaces.Child, outfit: pod_interfaces.Outfit) -> None:
        if child.namespace == pod_interfaces.HOST:
            self._dress_host(outfit)
            return
        there = self._inside.get((child.namespace, outfit.name))
        if there is None:
            raise errors.HardwareError("dress", f"there is no interface {outfit.name}")
        worn = pod_interfaces.Worn(
            name=outfit.name,
            mac=outfit.mac or there.worn.mac,
            mtu=outfit.mtu or there.worn.mtu,
            up=True,
            addresses=tuple(sorted({*there.worn.addresses, *outfit.addresses})),
        )
        self._inside[child.namespace, outfit.name] = dataclasses.replace(there, worn=worn, routes=outfit.routes, rules=outfit.rules)

    def _dress_host(self, outfit: pod_interfaces.Outfit) -> None:
        here = self.former(outfit.name)
        if here is None:
            raise errors.HardwareError("dress", f"there is no interface {outfit.name}")
        addresses = tuple(sorted({*here.addresses, *outfit.addresses}))
        self._hosts[outfit.name] = dataclasses.replace(
            here, mac=outfit.mac or here.mac, mtu=outfit.mtu or here.mtu, up=True, addresses=addresses
        )

    def undress(self, child: pod_interfaces.Child, outfit: pod_interfaces.Outfit) -> None:
        there = self._inside.get((child.namespace, outfit.name))
        if there is not None:
            self._inside[child.namespace, outfit.name] = dataclasses.replace(there, rules=())

    def worn(self, child: pod_interfaces.Child) -> pod_interfaces.Worn | None:
        there = self._inside.get((child.namespace, child.name))
        return None if there is None else there.worn

    def former(self, name: str) -> pod_interfaces.Former | None:
        found = self._interface(name)
        if found is None or self.is_away(name):
            return None
        place = identity.Identity(place=f"mock {found.mac}")
        as_it_is = pod_interfaces.Former(name=name, mac=found.mac, mtu=found.mtu, up=found.state == "up", identity=place)
        return self._hosts.get(name, as_it_is)

    def mark(self, former: pod_interfaces.Former, mark: str) -> None:
        if self.former(former.name) is None:
            raise errors.HardwareError("mark", f"there is no interface {former.name}")
        self._hosts[former.name] = dataclasses.replace(former, alias=mark)

    def locate(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.Child | None = None) -> pod_interfaces.Where:
        places = [place for (place, _), one in self._inside.items() if one.mark == whole.mark]
        if places:
            return pod_interfaces.Where.HERE if sandbox is not None and sandbox.namespace in places else pod_interfaces.Where.ELSEWHERE
        return pod_interfaces.Where.HOST if any(one.alias == whole.mark for one in self._hosts.values()) else pod_interfaces.Where.GONE

    def planned_placement(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.Child, pod: str) -> identity.Placement:
        if self.locate(whole) is not pod_interfaces.Where.HOST:
            raise _not_on_host(whole, "planned_placement")
        cookie = zlib.crc32(str(sandbox.namespace).encode())
        return identity.Placement(cookie=cookie, pod=pod, identity=whole.former.identity, ifindex=1)

    def move_in(self, whole: pod_interfaces.Passthrough, child: pod_interfaces.Child, outfit: pod_interfaces.Outfit) -> None:
        there = self._inside.get((child.namespace, outfit.name))
        if there is not None and there.mark != whole.mark:
            raise errors.HardwareError("move_in", f"the pod has an interface {outfit.name} already")
        if there is None:
            found = next((name for name, former in self._hosts.items() if former.alias == whole.mark and not self.is_away(name)), None)
            if found is None:
                raise _not_on_host(whole, "move_in")
            former = self._hosts.pop(found)
            worn = pod_interfaces.Worn(name=outfit.name, mac=former.mac, mtu=former.mtu, up=False)
            self._inside[child.namespace, outfit.name] = Inhabitant(worn=worn, mark=whole.mark, former=former)
        self.dress(child, outfit)

    def bring_back(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.Child | None = None) -> bool:
        del sandbox
        self._inside = {key: one for key, one in self._inside.items() if one.mark != whole.mark}
        self._hosts[whole.former.name] = whole.former
        return self._interface(whole.former.name) is not None


def _not_on_host(whole: pod_interfaces.Passthrough, call: str) -> errors.HardwareError:
    return errors.HardwareError(call, f"the interface {whole.former.name} is not in the host's network namespace")
