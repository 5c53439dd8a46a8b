"""Work on the node itself, by a privileged pod: signals to processes, network interfaces, what is left in folders."""

import json
from collections.abc import Sequence

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from e2e import objects
from e2e.workspace import Workspace

KILL = """
import os, pathlib, signal, sys
uid, done = sys.argv[1], 0
for place in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        groups, words = (place / "cgroup").read_text(), (place / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue
    if (uid in groups or uid.replace("-", "_") in groups) and b"run" in words:
        os.kill(int(place.name), signal.SIGKILL)
        done += 1
print(done)
"""
"""End the driver's process in the pod of the given UID, without any warning."""

LIST = """
import json, pathlib, sys
print(json.dumps([str(path) for folder in sys.argv[1:] for path in pathlib.Path("/host" + folder).glob("*")]))
"""


def on_host(name: str, program: str, *words: str, network: bool = False) -> Object:
    """Return a privileged pod that runs a program among the node's processes, and in its network where asked for; /host is its root."""
    mount: list[Json] = [{"name": "root", "mountPath": "/host"}]
    container = objects.container(
        "main", command=["python3", "-c", program, *words], volumeMounts=mount, securityContext={"privileged": True}
    )
    volume: Object = {"name": "root", "hostPath": {"path": "/"}}
    return objects.pod(name, containers=[container], volumes=[volume], hostPID=True, hostNetwork=network)


def done(space: Workspace, name: str, program: str, *words: str) -> str:
    """Run a program on the node to its end, and return what it printed."""
    space.create(on_host(name, program, *words))
    phase = space.api.wait(f"the end of {name}", lambda: {"Succeeded", "Failed"} & {json_types.text(space.pod(name), "status", "phase")})
    text = space.output(name)
    assert phase == {"Succeeded"}, text
    space.end(name)
    return text


def files(space: Workspace, *folders: str) -> Sequence[str]:
    """Return the paths of what is in folders of the node."""
    return [str(path).removeprefix("/host") for path in json.loads(done(space, "list", LIST, *folders))]
