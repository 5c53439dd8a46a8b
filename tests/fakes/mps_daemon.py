"""A stand-in for nvidia-cuda-mps-control: a daemon that serves its control pipe, and the program that talks to it, in one script.

``-f`` serves in the foreground: it starts a server process of its own, listens on ``$CUDA_MPS_PIPE_DIRECTORY/control`` and notes what it was told in
``told``. Without it, commands are read from standard input and sent there. ``stubborn`` ignores ``quit`` and SIGTERM, ``broken`` ends at once.
A connection without a command is nothing to it, as to NVIDIA's, and so is a file that it cannot write.
"""

import pathlib
import sys

from drakit_gpu import driver_root

SCRIPT = """#!{python} -IS
import contextlib, os, pathlib, signal, socket, sys

pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
behaviour = {behaviour!r}


def talk():
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(pipe / "control"))
        line.sendall(sys.stdin.buffer.read())
        line.shutdown(socket.SHUT_WR)
        sys.stdout.write(line.makefile().read())


def serve():
    if behaviour == "broken":
        sys.exit("no CUDA-capable device")
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = os.posix_spawn(sys.executable, [sys.executable, "-ISc", "import time; time.sleep(600)"], os.environ)
    (pipe / "told").write_text(" ".join(sys.argv[1:]) + "\\n" + os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    (pipe / "control").unlink(missing_ok=True)
    pathlib.Path("/dev/shm/mps-stand-in").write_text("shared") if {shm!r} else None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(pipe / "control"))
        listener.listen()
        while True:
            line, _ = listener.accept()
            with line, contextlib.suppress(OSError):
                command = line.makefile().read().strip()
                if not command:
                    continue
                with contextlib.suppress(OSError), (pipe / "told").open("a") as log:
                    log.write(command + "\\n")
                if command == "quit" and behaviour != "stubborn":
                    os.kill(server, signal.SIGKILL)
                    os.waitpid(server, 0)
                    return
                line.sendall(b"100.0\\n")


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
