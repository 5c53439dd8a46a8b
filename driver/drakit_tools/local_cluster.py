"""A local cluster in this process, for the commands that need one: its folder, its log, and its errors with a fix."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from drakit.cli import options
from drakit.core import errors
from drakit.telemetry import logs
from drakit_tools import manifests

if TYPE_CHECKING:
    from drakit_cluster import cluster as clusters

# A node's folder may have 44 bytes because of the sockets in it; /drakit-12345678/node-1 has 23.
_PARENT_BYTES = 20
LOCK = ".lock"
STATE = "state.jsonl"
"""The file with the cluster's objects, in the cluster's folder."""
COMPONENTS = ("apiserver", "scheduler", "controllers", "kubelet")
"""The components that can have their own feature gates."""
Gates: TypeAlias = Mapping[str, Mapping[str, bool]]
"""Feature gates by component. Those under "" are for all components; a component's own gates override them."""


def claim_folder(folder: pathlib.Path, nodes: Sequence[str]) -> pathlib.Path:
    """Create the folder if it is missing, for its owner only, and return its absolute path; raises SettingsError if no cluster can run in it."""
    from drakit_cluster import cluster_node

    folder = folder.absolute()
    options.check_own(folder)
    try:
        for node in nodes:
            cluster_node.NodeFolder(root=folder / node)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options.check_own(folder)
    except cluster_node.FolderError as error:
        raise errors.SettingsError(str(error), key="--folder") from error
    except OSError as error:
        raise errors.SettingsError(f"cannot use {folder}: {error.strerror}", key="--folder") from error
    return folder


@contextlib.contextmanager
def workplace(folder: pathlib.Path | None, nodes: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yield the locked folder, which is kept; without a folder, a new temporary one with a short path, which is removed afterwards."""
    if folder is not None:
        claimed = claim_folder(folder, nodes)
        with _alone_in(claimed):
            yield claimed
        return
    made = pathlib.Path(tempfile.mkdtemp(prefix="drakit-", dir=_short_parent()))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _alone_in(folder: pathlib.Path) -> Iterator[None]:
    """Lock the folder, so that no second cluster replaces the kubeconfig and sockets; the lock ends with the process."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise errors.SettingsError(f"cannot use {folder / LOCK}: {error.strerror}; remove it", key="--folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise errors.SettingsError(
            f"another cluster is running in {folder}; choose another folder, or stop that cluster", key="--folder"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _short_parent() -> str:
    """Return the system's folder for temporary files, or /tmp if its path is too long for sockets."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _PARENT_BYTES else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it


@contextlib.contextmanager
def logging_to(file: pathlib.Path) -> Iterator[None]:
    """Write this process's log to a file inside the block, so that it does not mix with the output."""
    with file.open("a", encoding="utf-8") as stream:
        logs.setup(level=logs.Level.INFO, style=logs.Style.CONSOLE, stream=stream)
        try:
            yield
        finally:
            logs.setup(level=logs.Level.ERROR, style=logs.Style.CONSOLE)


@contextlib.contextmanager
def running(
    folder: pathlib.Path,
    *,
    nodes: Sequence[str],
    port: int = 0,
    gates: Gates | None = None,
    keep_state: bool = False,
    kubernetes: str | None = None,
    run_pods: bool = False,
) -> Iterator["clusters.LocalCluster"]:
    """Run a cluster in a locked folder inside the block; raises SettingsError if it cannot start with these options.

    With ``keep_state`` it loads the objects of the folder's last cluster. With ``kubernetes`` it serves and decides as that version does, with its
    defaults and known errors. With ``run_pods`` it runs the commands of containers.
    """
    from drakit_cluster import cluster as clusters
    from drakit_cluster import cluster_node
    from drakit_cluster.api import apiserver
    from drakit_cluster.api.storage import state_log
    from drakit_cluster.objects import features
    from drakit_cluster.runtime import Mode

    def of(component: str) -> features.FeatureGates:
        return features.FeatureGates.of({**(gates or {}).get("", {}), **(gates or {}).get(component, {})}, version)

    version = manifests.known_version(kubernetes) if kubernetes is not None else ""
    repeated = manifests.errors_of(kubernetes)
    with contextlib.ExitStack() as stack:
        try:
            chosen = of("apiserver")
            others = cluster_node.Components(
                scheduler=of("scheduler"),
                controllers=of("controllers"),
                kubelets=dict.fromkeys(nodes, of("kubelet")),
                state=folder / STATE if keep_state else None,
                known_errors=repeated,
            )
        except ValueError as error:
            raise errors.SettingsError(str(error), key="--gate") from error
        try:
            mode = Mode.REAL if run_pods else Mode.PRETEND
            made = clusters.LocalCluster(folder, nodes=tuple(nodes), gates=chosen, components=others, port=port, mode=mode)
            started = stack.enter_context(made)
        except state_log.StateError as error:
            raise errors.SettingsError(str(error), key="--keep-state") from error
        except ValueError as error:
            raise errors.SettingsError(str(error), key="--node") from error
        except apiserver.StartError as error:
            raise errors.SettingsError(str(error), key="--port") from error
        except OSError as error:
            raise errors.SettingsError(f"cannot use {folder}: {error.strerror}", key="--folder") from error
        yield started
