#!python
"""The probe of ``probe.c`` for images without a C compiler; the wheel installs it as the command ``drakit-probe``.

It imports two modules of the standard library and nothing of drakit, so a probe costs what an interpreter costs, about 20 ms of processor time.
"""

import socket
import sys

USAGE = "usage: drakit-probe SOCKET PATH, for example drakit-probe /run/drakit/health.sock /readyz"
SECONDS = 5.0
ANSWER_MAX = 4096
PATH_MAX = 107
"""Bytes of a socket's path that the kernel takes."""


def fail(reason: str) -> int:
    """Report why the probe failed; return the exit status."""
    sys.stderr.write(f"drakit-probe: {reason}\n")
    return 1


def read(driver: socket.socket) -> bytes:
    """Return the answer, as much of it as the kubelet would show."""
    answer = b""
    while len(answer) < ANSWER_MAX and (part := driver.recv(ANSWER_MAX - len(answer))):
        answer += part
    return answer


def main(words: list[str]) -> int:
    """Ask the driver for a page on its socket; return the exit status, 0 where the driver answers 200."""
    if len(words) != 2 or len(words[0].encode()) > PATH_MAX:
        sys.stderr.write(f"{USAGE}\n")
        return 1
    path, page = words
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as driver:
            driver.settimeout(SECONDS)
            driver.connect(path)
            driver.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
            answer = read(driver)
    except TimeoutError:
        return fail(f"{path}: no answer in time")
    except OSError as error:
        return fail(f"{path}: {error.strerror}")
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end or not head.startswith(b"HTTP/1."):
        return fail("the answer is not HTTP")
    sys.stdout.write(body.decode(errors="replace"))
    return 0 if head.partition(b" ")[2].startswith(b"200 ") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
