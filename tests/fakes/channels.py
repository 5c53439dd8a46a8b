"""Channels of gRPC whose first connection has time on a loaded machine: by itself, gRPC gives up one that is not set up within 20 s."""

import grpc

from fakes import waits

_OPTIONS = (("grpc.min_reconnect_backoff_ms", int(waits.SECONDS * 1000)),)
"""gRPC core's least time for an attempt to connect; see subchannel.cc."""


def insecure(target: str) -> grpc.Channel:
    """Open a channel to a server of this machine."""
    return grpc.insecure_channel(target, options=_OPTIONS)
