"""The interface to the kubelet: gRPC services on unix sockets, and their registration.

The driver is always the server. This package has sockets, messages and deadlines; ``core.ports.ClaimEngine`` makes every decision about a claim.
"""
