"""A stand-in for nvidia-cuda-mps-control: a daemon that serves its control pipe, and the program that talks to it, in one script.

``-f`` serves in the foreground: it starts a server process of its own, listens on ``$CUDA_MPS_PIPE_DIRECTORY/control`` and notes what it was told in
``told``. Without it, commands are read from standard input and sent there. ``stubborn`` ignores ``quit`` and SIGTERM, ``broken`` ends at once.
A connection without a command is nothing to it, as to NVIDIA's, and so is a file that it cannot write.

A test starts it a dozen times, so it imports only modules that are part of the interpreter.
"""

import pathlib
import sys

from drakit_gpu import driver_root

SCRIPT = """#!{python} -IS
import _signal, _socket, os, sys

pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
behaviour = {behaviour!r}


def received(line):
    chunks = []
    while chunk := line.recv(4096):
        chunks.append(chunk)
    return b"".join(chunks).decode()


def talk():
    line = _socket.socket(_socket.AF_UNIX)
    line.connect(pipe + "/control")
    line.sendall(sys.stdin.buffer.read())
    line.shutdown(_socket.SHUT_WR)
    sys.stdout.write(received(line))


def write(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)


def serve():
    if behaviour == "broken":
        sys.exit("no CUDA-capable device")
    if behaviour == "stubborn":
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    server = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ)
    write(pipe + "/told", " ".join(sys.argv[1:]) + "\\n" + os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    if os.path.exists(pipe + "/control"):
        os.unlink(pipe + "/control")
    if {shm!r}:
        write("/dev/shm/mps-stand-in", "shared")
    listener = _socket.socket(_socket.AF_UNIX)
    listener.bind(pipe + "/control")
    listener.listen()
    while True:
        descriptor, _ = listener._accept()
        line = _socket.socket(fileno=descriptor)
        try:
            if answer(line, server):
                return
        except OSError:
            pass
        finally:
            line.close()


def answer(line, server):
    command = received(line).strip()
    if not command:
        return False
    try:
        write(pipe + "/told", command + "\\n", mode="a")
    except OSError:
        pass
    if command == "quit" and behaviour != "stubborn":
        os.kill(server, _signal.SIGKILL)
        os.waitpid(server, 0)
        return True
    line.sendall(b"100.0\\n")
    return False


serve() if "-f" in sys.argv else talk()
"""


def install(directory: pathlib.Path, behaviour: str = "", *, shm: bool = False) -> driver_root.DriverRoot:
    """A driver root with the stand-in; ``shm`` lets the daemon write to its /dev/shm."""
    program = directory / "usr/bin/nvidia-cuda-mps-control"
    program.parent.mkdir(parents=True, exist_ok=True)
    beside = program.with_suffix(".new")
    beside.write_text(SCRIPT.format(python=sys.executable, behaviour=behaviour, shm=shm))
    beside.chmod(0o755)
    beside.replace(program)  # in one step, because a driver that runs may start it at any time
    return driver_root.DriverRoot(path=directory)


def commands_received(folder: pathlib.Path) -> list[str]:
    """What the only daemon below ``folder`` was started with and told, its questions left out."""
    (file,) = folder.glob("*/pipe/told")
    return [line for line in file.read_text().splitlines() if not line.startswith("get_")]
