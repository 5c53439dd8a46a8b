"""The properties that returned interfaces lack: one file for each interface in the driver's folder, for the doctor.

A file has the recorded values of the properties that could not be restored, and stays until the next return that fails. Whether the interface differs
still is read from the kernel.
"""

import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping

import drakit
from drakit_nic import pod_interfaces
from drakit_nic.netlink import link_requests, namespaces, rtnetlink
from drakit_nic.passthrough import properties

FOLDER = "returned"
_SUFFIX = ".json"
_log = drakit.get_logger(__name__)


def report(home: pathlib.Path | None, host_state: pod_interfaces.HostState, failed: Mapping[str, str]) -> None:
    """Write the properties that could not be restored, where there is a folder. The log has them already, so an error stops nothing."""
    if not failed or home is None:
        return
    recorded = pod_interfaces.properties_of(host_state, was_away=True)
    try:
        write(home, host_state.name, {name: recorded[name] for name in failed})
    except OSError as error:
        _log.warning("interface differences not recorded", interface=host_state.name, error=str(error))


def write(home: pathlib.Path, interface: str, recorded: drakit.Record) -> None:
    """Write the recorded values of the properties that an interface lacks. Raises OSError."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=folder, prefix=".returned-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(drakit.thaw_record(recorded), file)
    pathlib.Path(fresh).rename(folder / f"{interface}{_SUFFIX}")


def read(home: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, drakit.Record]]:
    """Yield each file with its interface and the recorded values. Raises OSError, and ValueError for a file that somebody edited."""
    for file in sorted((home / FOLDER).glob(f"*{_SUFFIX}")):
        content = json.loads(file.read_text("utf-8"))
        if not isinstance(content, Mapping):
            raise TypeError(f"{file} is no JSON object")
        yield file, file.name.removesuffix(_SUFFIX), drakit.freeze_record(content)


def present(namespace: str | None, interface: str, recorded: drakit.Record) -> tuple[str, ...]:
    """Return the names of the properties that an interface lacks now, none where it is not there. Raises HardwareError."""
    with rtnetlink.failing_as("RTM_GETLINK"), rtnetlink.Socket.open(namespace) as sock:
        link = link_requests.find(sock, interface)
        if link is None:
            return ()
        with namespaces.opened(namespace or "/proc/thread-self/ns/net") as descriptor, properties.opened(sock, descriptor, link) as opened:
            return properties.differing(opened, recorded)
