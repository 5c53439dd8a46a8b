"""The pods of a mock machine: interfaces in namespaces that nobody sees, kept in memory.

It keeps the port's contract, but a mock machine runs no containers: the only pods are those that a test makes (``put``) and ends (``end``). What is
there is forgotten with the process, as the pods are.
"""

import dataclasses
import zlib
from collections.abc import Callable

from drakit.core import errors
from drakit.devices.nic import config, pod_interfaces, port

Place = str | int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inhabitant:
    """An interface in a pod; ``former`` is what it was, where it is a whole one of the host, and ``mark`` its mark."""

    observed: pod_interfaces.ObservedInterface
    routes: tuple[config.Route, ...] = ()
    rules: tuple[config.Rule, ...] = ()
    mark: str = ""
    host_state: pod_interfaces.HostState | None = None


class MockPods:
    """Pods of a machine whose interfaces ``interface`` returns."""

    def __init__(self, interface: Callable[[str], port.Interface | None]) -> None:
        self._interface = interface
        self._inside: dict[tuple[Place, str], Inhabitant] = {}
        self._hosts: dict[str, pod_interfaces.HostState] = {}

    def put(self, child: pod_interfaces.InterfaceRef, *, mac: str, mtu: int = 1500) -> None:
        """A child appears in a pod, as the hook makes it: down and without addresses."""
        self._inside[child.namespace, child.name] = Inhabitant(
            observed=pod_interfaces.ObservedInterface(name=child.name, mac=mac, mtu=mtu, up=False)
        )

    def end(self, namespace: Place) -> None:
        """A pod ends, and all that is in it: hardware comes back to the host as it was in the pod."""
        for key in [key for key in self._inside if key[0] == namespace]:
            gone = self._inside.pop(key)
            if gone.host_state is not None:
                observed = gone.observed
                self._hosts[gone.host_state.name] = pod_interfaces.HostState(
                    name=observed.name, mac=observed.mac, mtu=observed.mtu, up=False, alias=gone.mark, identity=gone.host_state.identity
                )

    def is_away(self, name: str) -> bool:
        """Return whether an interface of the host is in a pod."""
        return any(inhabitant.host_state is not None and inhabitant.host_state.name == name for inhabitant in self._inside.values())

    def apply(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        if child.namespace == pod_interfaces.HOST:
            self._apply_on_host(wanted)
            return
        there = self._inside.get((child.namespace, wanted.name))
        if there is None:
            raise errors.HardwareError("apply", f"there is no interface {wanted.name}")
        observed = pod_interfaces.ObservedInterface(
            name=wanted.name,
            mac=wanted.mac or there.observed.mac,
            mtu=wanted.mtu or there.observed.mtu,
            up=True,
            addresses=tuple(sorted({*there.observed.addresses, *wanted.addresses})),
        )
        self._inside[child.namespace, wanted.name] = dataclasses.replace(there, observed=observed, routes=wanted.routes, rules=wanted.rules)

    def _apply_on_host(self, wanted: pod_interfaces.InterfaceConfig) -> None:
        here = self.host_state(wanted.name)
        if here is None:
            raise errors.HardwareError("apply", f"there is no interface {wanted.name}")
        addresses = tuple(sorted({*here.addresses, *wanted.addresses}))
        self._hosts[wanted.name] = dataclasses.replace(
            here, mac=wanted.mac or here.mac, mtu=wanted.mtu or here.mtu, up=True, addresses=addresses
        )

    def remove_config(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        there = self._inside.get((child.namespace, wanted.name))
        if there is not None:
            self._inside[child.namespace, wanted.name] = dataclasses.replace(there, rules=())

    def observed(self, child: pod_interfaces.InterfaceRef) -> pod_interfaces.ObservedInterface | None:
        there = self._inside.get((child.namespace, child.name))
        return None if there is None else there.observed

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        found = self._interface(name)
        if found is None or self.is_away(name):
            return None
        place = pod_interfaces.Identity(place=f"mock {found.mac}")
        as_it_is = pod_interfaces.HostState(name=name, mac=found.mac, mtu=found.mtu, up=found.state == "up", identity=place)
        return self._hosts.get(name, as_it_is)

    def mark(self, host_state: pod_interfaces.HostState, mark: str) -> None:
        if self.host_state(host_state.name) is None:
            raise errors.HardwareError("mark", f"there is no interface {host_state.name}")
        self._hosts[host_state.name] = dataclasses.replace(host_state, alias=mark)

    def locate(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None = None) -> pod_interfaces.Location:
        places = [place for (place, _), one in self._inside.items() if one.mark == whole.mark]
        if places:
            return (
                pod_interfaces.Location.HERE if sandbox is not None and sandbox.namespace in places else pod_interfaces.Location.ELSEWHERE
            )
        return (
            pod_interfaces.Location.HOST
            if any(host_state.alias == whole.mark for host_state in self._hosts.values())
            else pod_interfaces.Location.GONE
        )

    def planned_placement(
        self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef, pod: str
    ) -> pod_interfaces.Placement:
        if self.locate(whole) is not pod_interfaces.Location.HOST:
            raise _not_on_host(whole, "planned_placement")
        cookie = zlib.crc32(str(sandbox.namespace).encode())
        return pod_interfaces.Placement(cookie=cookie, pod=pod, identity=whole.host_state.identity, ifindex=1)

    def move_in(
        self, whole: pod_interfaces.Passthrough, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig
    ) -> None:
        there = self._inside.get((child.namespace, wanted.name))
        if there is not None and there.mark != whole.mark:
            raise errors.HardwareError("move_in", f"the pod has an interface {wanted.name} already")
        if there is None:
            found = next(
                (name for name, host_state in self._hosts.items() if host_state.alias == whole.mark and not self.is_away(name)), None
            )
            if found is None:
                raise _not_on_host(whole, "move_in")
            host_state = self._hosts.pop(found)
            observed = pod_interfaces.ObservedInterface(name=wanted.name, mac=host_state.mac, mtu=host_state.mtu, up=False)
            self._inside[child.namespace, wanted.name] = Inhabitant(observed=observed, mark=whole.mark, host_state=host_state)
        self.apply(child, wanted)

    def return_to_host(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None = None) -> bool:
        del sandbox
        self._inside = {key: one for key, one in self._inside.items() if one.mark != whole.mark}
        self._hosts[whole.host_state.name] = whole.host_state
        return self._interface(whole.host_state.name) is not None


def _not_on_host(whole: pod_interfaces.Passthrough, call: str) -> errors.HardwareError:
    return errors.HardwareError(call, f"the interface {whole.host_state.name} is not in the host's network namespace")
