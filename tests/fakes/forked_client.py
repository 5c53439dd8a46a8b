"""A request for a command of ``forked_cli``; ``python -I -S forked_client.py SOCKET PROGRAM WORDS...`` runs one with its own descriptors.

Shells start this file for each command, so it imports only what is built into Python or takes no time: with json, socket and array each start would
take 10 ms more, and with ``forked_cli`` 30 ms.
"""

import _socket
import marshal
import os
import sys

MESSAGE = 1 << 20
Socket = _socket.socket


def send(server: str, order: object, descriptors: list[int]) -> Socket:
    """Have a command run with these descriptors as standard input, output and error. Its process ID, then its exit status, come on the socket."""
    asking = Socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        asking.connect(server)
        asking.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, MESSAGE)
        packed = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors)
        request = marshal.dumps(order)  # type: ignore[arg-type] # text, booleans and their containers
        asking.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    except BaseException:
        asking.close()
        raise
    return asking


def main() -> None:
    """Run one command, and end with its exit status."""
    _, server, program, *words = sys.argv
    order = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "namespace": "", "session": False, "program": program}  # noqa: PTH109
    asking = send(server, order, [0, 1, 2])
    if not asking.recv(64) or not (status := asking.recv(64)):
        sys.exit(f"no answer about {program} {' '.join(words)}")
    sys.exit(int(status) & 0xFF)


if __name__ == "__main__":
    main()
