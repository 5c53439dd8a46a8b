"""A mock machine's nvidia-cuda-mps-control: copied into the mock driver root as a program, so that MPS claims can be prepared without a GPU.

Like NVIDIA's, it is a daemon with ``-f``, and without it sends the lines of its standard input to the daemon. Both meet in the socket ``control`` of
``$CUDA_MPS_PIPE_DIRECTORY``. It knows the limits and ``quit``, and serves no CUDA program. A daemon whose socket was removed ends by itself.
"""

import contextlib
import os
import pathlib
import socket
import sys

_CONTROL = pathlib.Path("control")
_MESSAGE_MAX = 65536
_LOOK_SECONDS = 5.0
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
    """Be the daemon."""
    limits: dict[str, str] = {}
    _CONTROL.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(_CONTROL))
        listener.listen()
        listener.settimeout(_LOOK_SECONDS)
        own = _CONTROL.stat().st_ino
        while _is_there(own):
            with contextlib.suppress(OSError):
                line, _ = listener.accept()
                with line:
                    line.settimeout(_LOOK_SECONDS)
                    while words := line.recv(_MESSAGE_MAX).decode("utf-8", "replace").split():
                        if words == ["quit"]:
                            return 0
                        with contextlib.suppress(ValueError):
                            line.sendall(f"{_answer(words, limits)}\n".encode())
    return 0


def _is_there(inode: int) -> bool:
    try:
        return _CONTROL.stat().st_ino == inode
    except FileNotFoundError:
        return False


def send() -> int:
    """Send commands to the daemon and print its answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        try:
            line.connect(str(_CONTROL))
        except OSError:
            sys.stderr.write("Cannot find MPS control daemon process\n")
            return 1
        for command in filter(str.strip, sys.stdin):
            line.sendall(command.encode())
            sys.stdout.write(line.recv(_MESSAGE_MAX).decode())
    return 0


if __name__ == "__main__":
    # Paths of sockets are short, so the folder is entered and the socket named without it.
    os.chdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    sys.exit(serve() if "-f" in sys.argv[1:] else send())
