"""A mock machine's nvidia-cuda-mps-control: a program in the mock driver root, so that MPS claims can be prepared without a GPU.

Like NVIDIA's, it runs as the daemon with ``-f``; without it, it sends the lines of its standard input to the daemon. They connect by the socket
``control`` in ``$CUDA_MPS_PIPE_DIRECTORY``. The daemon supports the limits and ``quit``, and serves no CUDA program. It ends when its socket is
removed.
"""

import contextlib
import os
import pathlib
import socket
import sys

_CONTROL = pathlib.Path("control")
_MESSAGE_MAX = 65536
_CHECK_SECONDS = 5.0
_PERCENTAGE = "percentage"


def _answer(words: list[str], limits: dict[str, str]) -> str:
    match words:
        case ["get_default_active_thread_percentage"]:
            return limits.get(_PERCENTAGE, "100.0")
        case ["set_default_active_thread_percentage", percentage]:
            limits[_PERCENTAGE] = f"{float(percentage):.1f}"
            return limits[_PERCENTAGE]
        case ["set_default_device_pinned_mem_limit", _, _] | ["get_server_list"]:
            return ""
    return f"Unknown command: {' '.join(words)}"


def serve() -> int:
    """Run as the daemon until ``quit``; return the exit status."""
    limits: dict[str, str] = {}
    _CONTROL.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(_CONTROL))
        listener.listen()
        listener.settimeout(_CHECK_SECONDS)
        own = _CONTROL.stat().st_ino
        while _is_own_socket(own):
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(_CHECK_SECONDS)
                    while words := connection.recv(_MESSAGE_MAX).decode("utf-8", "replace").split():
                        if words == ["quit"]:
                            return 0
                        with contextlib.suppress(ValueError):
                            connection.sendall(f"{_answer(words, limits)}\n".encode())
    return 0


def _is_own_socket(inode: int) -> bool:
    try:
        return _CONTROL.stat().st_ino == inode
    except FileNotFoundError:
        return False


def send() -> int:
    """Send commands to the daemon and print its answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(_CONTROL))
        except OSError:
            sys.stderr.write("Cannot find MPS control daemon process\n")
            return 1
        for command in filter(str.strip, sys.stdin):
            connection.sendall(command.encode())
            sys.stdout.write(connection.recv(_MESSAGE_MAX).decode())
    return 0


if __name__ == "__main__":
    # A socket's path is limited in length, so the socket is named relative to its folder.
    os.chdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    sys.exit(serve() if "-f" in sys.argv[1:] else send())
