"""Floods a link with frames or datagrams as a hostile pod would; a program of its own, run inside a namespace for so many seconds.

``python frame_flood.py frames SECONDS LINK SOURCE-MAC`` sends raw frames with any source address;
``python frame_flood.py datagrams SECONDS ADDRESS PRIORITY`` sends UDP with a socket priority (SO_PRIORITY), by which HTB selects a class.
"""

import contextlib
import socket
import struct
import sys
import time

_SO_PRIORITY = 12
_PAYLOAD = bytes(1400)


def frames(link: str, source: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((link, 0))
    sock.setblocking(False)
    return sock


def datagrams(address: str, priority: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sock.setsockopt(socket.SOL_SOCKET, _SO_PRIORITY, struct.pack("=I", int(priority, 0)))
    sock.connect((address, 9))
    sock.setblocking(False)
    return sock


def main(kind: str, seconds: str, target: str, choice: str) -> None:
    """Send until the time is over; a full queue is waited for shortly, so that the receiver finds the processor free now and then."""
    content = _PAYLOAD
    if kind == "frames":
        sock = frames(target, choice)
        content = bytes.fromhex("020000000099" + choice.replace(":", "") + "88b5") + _PAYLOAD
    else:
        sock = datagrams(target, choice)
    end = time.monotonic() + float(seconds)
    with sock:
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                for _ in range(32):
                    sock.send(content)
            time.sleep(0.0005)


if __name__ == "__main__":
    main(*sys.argv[1:5])
