"""The kubelet's side of a driver: gRPC services on unix sockets, and the registration that tells the kubelet of them.

The driver is always the server. What belongs here: sockets, messages, deadlines. What does not: any decision about a claim, which
``core.ports.ClaimEngine`` makes.
"""
