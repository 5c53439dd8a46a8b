"""Sends frames as fast as one processor can, many in one system call; a program of its own, run inside a namespace.

``python frame_sender.py SECONDS LINK SOURCE-MAC SIZE`` waits for a line of standard input, sends frames of so many bytes, and prints the processor
time that it used, in seconds. The frames have different UDP ports, so that the kernel spreads them over the queues of a NIC. Frames that a queue
drops are no error.
"""

import ctypes
import errno
import os
import resource
import socket
import struct
import sys
import time

FRAMES = 64
_HEADERS = 14 + 20 + 8


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint),
    )


def frame(source: str, size: int, port: int) -> bytes:
    """A UDP datagram over IPv4, to a MAC address that nobody has."""
    payload = max(size - _HEADERS, 0)
    ethernet = bytes.fromhex("020000000099" + source.replace(":", "") + "0800")
    network = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + payload, 0, 0, 64, 17, 0, bytes([10, 99, 1, 1]), bytes([10, 99, 0, 1]))
    return ethernet + network + struct.pack("!HHHH", port, 9, 8 + payload, 0) + bytes(payload)


def main(seconds: str, link: str, source: str, size: str) -> None:
    """Send until the time is over."""
    contents = [ctypes.create_string_buffer(frame(source, int(size), 20000 + number)) for number in range(FRAMES)]
    vectors = [_Vector(ctypes.addressof(content), len(content) - 1) for content in contents]
    messages = (_Message * FRAMES)(*(_Message(None, 0, ctypes.pointer(vector), 1, None, 0, 0, 0) for vector in vectors))
    send = ctypes.CDLL(None, use_errno=True).sendmmsg
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((link, 0))
        sys.stdin.readline()
        before = _processor_seconds()
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            if send(sock.fileno(), messages, FRAMES, 0) < 0 and (error := ctypes.get_errno()) not in {errno.ENOBUFS, errno.EAGAIN}:
                raise OSError(error, os.strerror(error))
    sys.stdout.write(f"{_processor_seconds() - before}\n")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:5])
