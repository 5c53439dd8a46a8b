"""The host's routes by an interface that leaves for a pod, as they are remembered; pure.

Only what somebody gave the host is remembered: what the kernel makes of addresses and of routers' advertisements it makes again, and so does a
routing daemon with what it has learnt. What is remembered is part of a claim's intent, which is read often, so there is a bound (``MOST``).
"""

import dataclasses
from collections.abc import Mapping

from drakit.core import records

MOST = 256
"""Routes that are remembered of one interface; one with more is not given whole. They make some 70 KB of the journal."""

_BY_DAEMONS = frozenset({8, *range(10, 16), 17, 42, 99, 186, 187, 188, 189, 192})
"""GateD, MRT, Zebra, BIRD, DNROUTED, XORP, NTK; mrouted; Babel; Open/R; BGP, IS-IS, OSPF, RIP; EIGRP (RTPROT_*, linux/rtnetlink.h)."""


def is_by_daemon(protocol: int) -> bool:
    """Whether routes of this protocol are a routing daemon's, which makes them anew itself when the interface is there again."""
    return protocol in _BY_DAEMONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hop:
    """One way of a route: ``interface`` by name, ``gateway`` empty where the destination is on the link.

    ``more`` are attributes that are only passed on (realm, encapsulation), as the kernel wrote them, in hexadecimal.
    """

    interface: str
    gateway: str = ""
    weight: int = 1
    onlink: bool = False
    more: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostRoute:
    """One route; numbers are the kernel's (linux/rtnetlink.h). ``origin`` is a source prefix, usually empty; ``more`` as in ``Hop`` (metrics)."""

    destination: str
    hops: tuple[Hop, ...]
    table: int = 254
    protocol: int = 4
    scope: int = 0
    kind: int = 1
    tos: int = 0
    metric: int = 0
    source: str = ""
    origin: str = ""
    more: str = ""

    @property
    def is_onlink(self) -> bool:
        """Whether its gateways need no other route to be reached."""
        return all(not hop.gateway or hop.onlink for hop in self.hops)

    def __str__(self) -> str:
        ways = " ".join(f"{f'via {hop.gateway} ' if hop.gateway else ''}dev {hop.interface}" for hop in self.hops)
        return f"{self.destination} {ways} table {self.table}{f' metric {self.metric}' if self.metric else ''}"


def to_record(route: HostRoute) -> records.Record:
    """A route as the journal keeps it."""
    return {**dataclasses.asdict(route), "hops": [dataclasses.asdict(hop) for hop in route.hops]}


def from_record(record: object) -> HostRoute | None:
    """The route that a record describes; None for anything else."""
    match record:
        case {
            "destination": str(destination),
            "hops": (*hops,),
            "table": int(table),
            "protocol": int(protocol),
            "scope": int(scope),
            "kind": int(kind),
            "tos": int(tos),
            "metric": int(metric),
            "source": str(source),
            "origin": str(origin),
            "more": str(more),
        }:
            found = tuple(hop for hop in map(_hop, hops) if hop is not None)
            return HostRoute(
                destination=destination,
                hops=found,
                table=table,
                protocol=protocol,
                scope=scope,
                kind=kind,
                tos=tos,
                metric=metric,
                source=source,
                origin=origin,
                more=more,
            )
        case _:
            return None


def _hop(record: object) -> Hop | None:
    if not isinstance(record, Mapping):
        return None
    match record:
        case {"interface": str(interface), "gateway": str(gateway), "weight": int(weight), "onlink": bool(onlink), "more": str(more)}:
            return Hop(interface=interface, gateway=gateway, weight=weight, onlink=onlink, more=more)
        case _:
            return None
