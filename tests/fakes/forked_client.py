"""A request for a command of ``forked_cli``; ``python -I -S forked_client.py SOCKET PROGRAM WORDS...`` runs one with its own descriptors.

Shells start this file for each command, so it imports little: with ``forked_cli`` each start takes 20 ms more.
"""

import array
import json
import os
import socket
import sys

MESSAGE = 1 << 20


def send(server: str, order: object, descriptors: list[int]) -> socket.socket:
    """Have a command run with these descriptors as standard input, output and error. Its process ID, then its exit status, come on the socket."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        asking.connect(server)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
        asking.sendmsg([json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
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
