"""Pods' namespaces on the real kernel: dressing an interface there, moving a whole one in, and bringing it back.

A moved interface is known by its mark (ifalias), which goes with it from namespace to namespace; neither its name nor its index is its own for long.
Hardware is brought back by its bus address and burnt-in MAC instead, because a pod's root can write any alias.
It is looked for in the driver's own namespace, in that of the machine's first process (where the kernel puts hardware whose namespace died), and in
every other that a process or /run/netns shows. A virtual interface dies with its namespace, so there may be nothing to bring back.
"""

import contextlib
import errno
import logging
import pathlib
from collections.abc import Callable, Iterator

from drakit.devices.nic import calls, inside, pods, procsys, routing
from drakit.devices.nic.tc import rtnetlink

_NAMED = pathlib.Path("/run/netns")
_PROC = pathlib.Path("/proc")
_OWN = pathlib.Path("/proc/self/ns/net")
_log = logging.getLogger(__name__)


class KernelPods:
    """Pods as seen from a namespace: None for the process's own, else a name under /run/netns, a path, or an open descriptor."""

    _namespace: str | int | None
    _after_effect: Callable[[], None]

    def dress(self, child: pods.Child, outfit: pods.Outfit) -> None:
        with calls.failing_as("dress"), self._sock_in(child.namespace) as sock:
            link = _existing(sock, outfit.name)
            _set_figures(sock, link, outfit)
            with rtnetlink.opened(child.namespace or self._namespace or str(_OWN)) as descriptor:
                procsys.write(descriptor, outfit.name, outfit.sysctls)
            inside.alter(sock, link.ifindex, up=True)
            _dress_up(sock, link.ifindex, outfit)

    def undress(self, child: pods.Child, outfit: pods.Outfit) -> None:
        with calls.failing_as("undress"), self._sock_in(child.namespace) as sock:
            for rule in outfit.rules:
                inside.drop_rule(sock, rule)

    def worn(self, child: pods.Child) -> pods.Worn | None:
        with calls.failing_as("worn"), self._sock_in(child.namespace) as sock:
            link = inside.find(sock, child.name)
            if link is None:
                return None
            return pods.Worn(name=link.name, mac=link.mac, mtu=link.mtu, up=link.up, addresses=inside.addresses(sock, link.ifindex))

    def former(self, name: str) -> pods.Former | None:
        with calls.failing_as("former"), self._sock_in(self._namespace) as sock:
            link = inside.find(sock, name)
            if link is None:
                return None
            own = inside.addresses(sock, link.ifindex)
            given, left_out = routing.read(sock, link.ifindex)
            return pods.Former(
                name=name,
                mac=link.mac,
                mtu=link.mtu,
                up=link.up,
                addresses=own,
                alias=link.alias,
                place=link.place,
                routes=given,
                routes_left_out=left_out,
            )

    def mark(self, former: pods.Former, mark: str) -> None:
        with calls.failing_as("mark"), self._sock_in(self._namespace) as sock:
            link = _existing(sock, former.name)
            if link.alias != mark:
                inside.alter(sock, link.ifindex, alias=mark)

    def move_in(self, mark: str, child: pods.Child, outfit: pods.Outfit) -> None:
        with calls.failing_as("move_in"), rtnetlink.opened(child.namespace) as target:
            with self._sock_in(target) as sock:
                there, named = inside.marked(sock, mark), inside.find(sock, outfit.name)
            if named is not None and named.alias != mark:
                raise OSError(errno.EEXIST, f"the pod has an interface {outfit.name} already")
            if there is None:
                self._move(mark, target, outfit)
            self.dress(pods.Child(namespace=target, name=outfit.name), outfit)

    def _move(self, mark: str, target: int, outfit: pods.Outfit) -> None:
        with self._place_of(mark) as place:
            if place is None:
                raise OSError(errno.ENODEV, "the interface is in no network namespace that can be seen from here")
            sock, link = place
            inside.alter(sock, link.ifindex, up=False)
            inside.alter(sock, link.ifindex, name=outfit.name, namespace=target)

    def is_home(self, mark: str, former: pods.Former) -> bool:
        with calls.failing_as("is_home"), self._sock_in(self._namespace) as sock:
            return inside.marked(sock, mark, former.place) is not None

    def bring_back(self, mark: str, former: pods.Former) -> bool:
        with calls.failing_as("bring_back"), self._sock_in(self._namespace) as own:
            here = inside.marked(own, mark, former.place)
            if here is None:
                with self._place_of(mark, former.place) as place, rtnetlink.opened(self._namespace or str(_OWN)) as home:
                    if place is None:
                        return _is_back(own, former)
                    sock, link = place
                    inside.alter(sock, link.ifindex, up=False)
                    inside.alter(sock, link.ifindex, name=former.name, namespace=home)
                here = inside.marked(own, mark, former.place)
            if here is not None:
                _restore(own, here, former, mark)
            return here is not None

    @contextlib.contextmanager
    def _sock_in(self, namespace: str | int | None) -> Iterator[rtnetlink.Socket]:
        with rtnetlink.Socket.open(self._namespace if namespace == pods.HOST else namespace, self._after_effect) as sock:
            yield sock

    @contextlib.contextmanager
    def _place_of(self, mark: str, hardware: str = "") -> Iterator[tuple[rtnetlink.Socket, inside.Link] | None]:
        """A socket in the namespace that has the marked interface, and the interface; None where no namespace has it."""
        for namespace in (self._namespace, *_others()):
            try:
                sock = rtnetlink.Socket.open(namespace, self._after_effect)
            except OSError:
                continue
            with sock:
                link = inside.marked(sock, mark, hardware)
                if link is not None:
                    yield sock, link
                    return
        yield None


def _others() -> Iterator[str]:
    """Every namespace that a process or a name shows, each once, the first process's first."""
    seen: set[tuple[int, int]] = set()
    processes = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    shown = [_PROC / str(pid) / "ns/net" for pid in processes]
    named = sorted(_NAMED.iterdir()) if _NAMED.is_dir() else []
    for path in (*shown, *named):
        with contextlib.suppress(OSError):
            found = path.stat()
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                yield str(path)


def _existing(sock: rtnetlink.Socket, name: str) -> inside.Link:
    link = inside.find(sock, name)
    if link is None:
        raise OSError(errno.ENODEV, f"there is no interface {name}")
    return link


def _set_figures(sock: rtnetlink.Socket, link: inside.Link, outfit: pods.Outfit) -> None:
    """MAC and MTU where they differ; a MAC is changed while the link is down, because not every driver can otherwise."""
    if outfit.mac and link.mac != outfit.mac:
        inside.alter(sock, link.ifindex, up=False)
        inside.alter(sock, link.ifindex, mac=outfit.mac)
    if outfit.mtu and link.mtu != outfit.mtu:
        inside.alter(sock, link.ifindex, mtu=outfit.mtu)


def _dress_up(sock: rtnetlink.Socket, ifindex: int, outfit: pods.Outfit) -> None:
    """What needs a link that is up; routes onto the link come before those by a gateway, which they make reachable."""
    present = set(inside.addresses(sock, ifindex))
    for address in outfit.addresses:
        if address not in present:
            inside.add_address(sock, ifindex, address)
    for neighbour in outfit.neighbours:
        inside.add_neighbour(sock, ifindex, neighbour)
    for route in sorted(outfit.routes, key=lambda route: bool(route.gateway)):
        inside.add_route(sock, ifindex, route)
    for rule in outfit.rules:
        inside.add_rule(sock, rule)


def _is_back(sock: rtnetlink.Socket, former: pods.Former) -> bool:
    """Whether the interface is the host's already."""
    link = inside.find(sock, former.name)
    return link is not None and (link.mac, link.alias) == (former.mac, former.alias)


def _restore(sock: rtnetlink.Socket, link: inside.Link, former: pods.Former, mark: str) -> None:
    """The interface as it was; its mark goes last, so that a crash before finds it again.

    That it has been away is written into the mark first: with its addresses back it looks as if it had never left, and one that never left keeps
    the routes that it has, also those that an admin took away meanwhile.
    """
    was_away = link.alias == pods.returning(mark) or _is_changed(sock, link, former)
    if was_away and link.alias != pods.returning(mark):
        inside.alter(sock, link.ifindex, alias=pods.returning(mark))
    if link.name != former.name or link.mac != former.mac:
        inside.alter(sock, link.ifindex, up=False)
        inside.alter(sock, link.ifindex, name=former.name, mac=former.mac if link.mac != former.mac else "")
    if link.mtu != former.mtu:
        inside.alter(sock, link.ifindex, mtu=former.mtu)
    inside.alter(sock, link.ifindex, up=former.up)
    present = set(inside.addresses(sock, link.ifindex))
    for address in former.addresses:
        if address not in present:
            inside.add_address(sock, link.ifindex, address)
    for route, error in routing.restore(sock, link.ifindex, former.name, former.routes) if was_away else ():
        _log.warning("route restore failed", extra={"interface": former.name, "route": str(route), "error": str(error)})
    inside.alter(sock, link.ifindex, alias=former.alias)


def _is_changed(sock: rtnetlink.Socket, link: inside.Link, former: pods.Former) -> bool:
    """Whether the interface lacks what it loses by leaving: it is down, has another name, or not all its addresses."""
    lost = set(former.addresses) - set(inside.addresses(sock, link.ifindex))
    return link.name != former.name or link.up != former.up or bool(lost)
