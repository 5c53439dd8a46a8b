"""``drakit uninstall-node``: removes what stopped drakit drivers left on this node.

It uses the code that a running driver uses: unprepare for claims, ``core.advanced.Removable`` for everything else that the driver made, and the
clean-up of sockets and slices.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from drakit import machines
from drakit import settings as values
from drakit.cdi import spec
from drakit.cli import composition, options, output, process, views
from drakit.cli.commands import prepare
from drakit.core import advanced, errors, lifecycle, names, ports
from drakit.journal import inspection, marks
from drakit.kube import claims as api_claims
from drakit.kube import client, slices
from drakit.kubelet import sockets
from drakit.node import local_node, resolution, timing
from drakit.serving import unix_sockets

_GONE = frozenset({errors.ClaimFault.NOT_FOUND, errors.ClaimFault.REPLACED, errors.ClaimFault.NOT_ALLOCATED})
_NO_API = "--no-api is given"
_UID_CHARACTERS = 36
_HARDWARE = "hardware"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """Something that a driver left on the node. ``blocks`` is why removing it needs --force, ``error`` why it could not be removed."""

    driver: str
    kind: str
    name: str
    detail: str = ""
    blocks: str = ""
    error: str = ""
    removed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """The API server, or the reason why it is not used."""

    api: client.Client | None
    node: str
    reason: str = ""


@options.quietly
def uninstall_node(
    mock: options.Mock = None,
    folder: options.Folder = None,
    node_name: options.Node = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
    without_api: options.WithoutApi = False,
    is_sure: Annotated[bool, typer.Option("--yes", help="Remove everything that is listed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove the devices of claims that pods may be using.")] = False,
    style: options.Output = options.Format.TABLE,
) -> None:
    """List what drakit left on this node, and with --yes remove it.

    Stop the driver first: delete its DaemonSet. The command removes devices that were made for claims (MIG instances, NIC shares and their
    interfaces, MPS daemons), CDI files, traffic control, sockets, the journal, and this node's ResourceSlices. It removes nothing that drakit did
    not make.

    If a claim is prepared and still allocated, its pods may be running: nothing is removed without --force. The same applies if the API server
    cannot be asked. After an error, run the command again.

    [bold]Examples[/bold]

      drakit uninstall-node --node $(hostname)

      drakit uninstall-node --node $(hostname) --yes

      drakit uninstall-node --mock dgx-a100-40gb-2gpu --no-api --yes -o json
    """
    flags = {"api.kubeconfig": kubeconfig}
    settings = options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=node_name, local=True, flags=flags)
    pretend = composition.machine(settings)
    is_there = pretend is not None and pretend.directory.exists()
    served = composition.families_left(settings, only=families or ())
    with _cluster(settings, _NO_API if without_api else "") as cluster:
        for family in served if is_sure else ():
            _check_ended(settings, family)
        items = [item for family in served for item in _found(settings, family, cluster)]
        if pretend is not None and is_there:
            items.append(Item(driver="", kind="mock machine", name=str(pretend.directory)))
        blocked = [] if force else [item for item in items if item.blocks]
        if is_sure and not blocked:
            items = [item for family in served for item in _removed(settings, family, cluster, items)]
            items += _mock_removed(settings, pretend, items, is_there=is_there)
        _show(settings, items, style, is_removed=is_sure and not blocked, is_sure=is_sure)
    if cluster.reason:
        output.warn(f"ResourceSlices are not listed: {cluster.reason}")
    if blocked and is_sure:
        listed = ", ".join(f"{item.name} ({item.blocks})" for item in blocked)
        fix = f"delete their pods (without Kubernetes: {process.PROGRAM.get()} unprepare UID), or add --force"
        raise errors.DeviceBusyError(f"nothing was removed, because claims may be in use: {listed}; {fix}")
    failed = [item for item in items if item.error]
    if failed:
        raise errors.HardwareError("uninstall-node", "; ".join(f"{item.kind} {item.name}: {item.error}" for item in failed))


def _check_ended(settings: values.Settings, family: composition.NodeFamily) -> None:
    """Raise DeviceBusyError while a process serves this driver."""
    name, home = family.spec.driver_name, family.folders.home
    serving = [path for path in home.glob("*.sock") if path.name.startswith(sockets.SERVICE)] if home.is_dir() else []
    nowhere = settings.node.registry_dir / "none"
    if sockets.has_living(settings.node.registry_dir, name, besides=nowhere) or any(
        unix_sockets.occupant(path) is unix_sockets.Occupant.LISTENER for path in serving
    ):
        raise errors.DeviceBusyError(
            f"{name} is running on this node; stop it first: delete its DaemonSet and wait until its pod has ended"
        )


@contextlib.contextmanager
def _cluster(settings: values.Settings, reason: str) -> Iterator[Cluster]:
    node = settings.node.name
    if not reason and not node:
        reason = "the node's name is not set; add --node NAME"
    if reason:
        yield Cluster(api=None, node=node, reason=reason)
        return
    try:
        api = client.connect(settings.api.kubeconfig, seconds=settings.api.timeout)
    except errors.SettingsError as error:
        yield Cluster(api=None, node=node, reason=str(error))
        return
    with contextlib.closing(api):
        yield Cluster(api=api, node=node)


def _found(settings: values.Settings, family: composition.NodeFamily, cluster: Cluster) -> Iterator[Item]:
    """Yield what a driver left on the node; changes nothing."""
    driver, home = family.spec.driver_name, family.folders.home
    claimed: set[str] = set()
    lost = "the journal is lost"
    leftovers, unread = _leftovers(family)
    if unread:
        yield Item(driver=driver, kind=_HARDWARE, name=driver, detail="cannot be read", error=unread)
    if inspection.exists(home):
        view = views.look(family)
        lost = lost if view.is_lost else ""
        for entry in view.entries:
            claimed.add(entry.claim.uid)
            devices = ", ".join(kept.device.name for kept in entry.grants)
            blocks = _why_in_use(family, entry, cluster, is_lost=view.is_lost)
            yield Item(driver=driver, kind="claim", name=str(entry.claim), detail=f"{entry.state.value}: {devices}", blocks=blocks)
    for path in _cdi_files(family):
        # With an intact journal, a file without an entry is an orphan. After a loss of the journal, a pod may use the file's devices.
        is_claimed = any(uid in path.name for uid in claimed)
        yield Item(driver=driver, kind="CDI file", name=str(path), blocks="" if is_claimed else lost)
    for text in leftovers:
        yield Item(driver=driver, kind="kernel", name=text, blocks="" if claimed else lost)
    for path in _registrations(settings, driver):
        yield Item(driver=driver, kind="socket", name=str(path))
    if home.exists():
        yield Item(driver=driver, kind="folder", name=str(home))
    elif _mark(family).exists():
        yield Item(driver=driver, kind="folder", name=str(_mark(family)), detail="the mark of a journal that is gone")
    yield from (Item(driver=driver, kind="ResourceSlice", name=name) for name in _slices(driver, cluster))


def _why_in_use(family: composition.NodeFamily, entry: lifecycle.Entry, cluster: Cluster, *, is_lost: bool) -> str:
    """Return why a claim may have running pods; empty if it cannot. While a lost journal is restored, its claims are in the state preparing."""
    states = {lifecycle.State.PREPARED, lifecycle.State.PREPARING} if is_lost else {lifecycle.State.PREPARED}
    if entry.state not in states or entry.boot_id != family.spec.identity.boot_id:
        return ""
    if cluster.api is None:
        return f"prepared; the API server was not asked: {cluster.reason}"
    if entry.claim.name == resolution.UNKNOWN:
        return "prepared, and its name is unknown"
    try:
        api_claims.ApiClaims(cluster.api).fetch(entry.claim)
    except errors.ClaimError as error:
        return "" if error.fault in _GONE else "prepared and allocated"
    except errors.DrakitError as error:
        return f"prepared; the API server did not answer: {error}"
    return "prepared and allocated"


def _cdi_files(family: composition.NodeFamily) -> Sequence[pathlib.Path]:
    prefix, folder = spec.file_prefix(family.spec.driver_name), family.folders.cdi
    paths = sorted(folder.iterdir()) if folder.is_dir() else ()
    return [path for path in paths if path.name.startswith(prefix) and names.is_uid(path.name.removeprefix(prefix)[:_UID_CHARACTERS])]


def _leftovers(family: composition.NodeFamily) -> tuple[Sequence[str], str]:
    """Return what a driver left besides claims, and why its hardware cannot be read; empty if it can."""
    try:
        made = family.spec.build(ports.no_intents)
        return made.leftovers() if isinstance(made, advanced.Removable) else (), ""
    except (errors.HardwareError, errors.SettingsError) as error:
        return (), str(error)


def _registrations(settings: values.Settings, driver: str) -> Sequence[pathlib.Path]:
    return tuple(sockets.registered(settings.node.registry_dir, driver)) if settings.node.registry_dir.is_dir() else ()


def _slices(driver: str, cluster: Cluster) -> Sequence[str]:
    if cluster.api is None:
        return ()
    store = slices.ApiSlices(cluster.api, driver=driver, node=cluster.node, clock=timing.SystemClock())
    return [stored.name for stored in store.list()]


def _removed(settings: values.Settings, family: composition.NodeFamily, cluster: Cluster, items: Sequence[Item]) -> Iterator[Item]:
    """Remove what a driver left. The journal is removed last, and only if all claims were released."""
    driver, home = family.spec.driver_name, family.folders.home
    own = [item for item in items if item.driver == driver]
    if any(item.kind == _HARDWARE for item in own):
        yield from own
        return
    failed = dict(_node_cleared(family)) if inspection.exists(home) or any(item.kind in {"CDI file", "kernel"} for item in own) else {}
    is_cleared = not failed
    if is_cleared:
        steps: dict[str, Callable[[], None]] = {
            "socket": lambda: sockets.clear_registry(settings.node.registry_dir, driver),
            "folder": lambda: _remove_folder(family),
            "ResourceSlice": lambda: _delete_slices(driver, cluster),
        }
        # Unprepare creates a journal if there was none.
        left = {item.kind for item in own} | ({"folder"} if home.exists() else set())
        failed = {kind: why for kind, step in steps.items() if kind in left and (why := _failure(step))}
    for item in own:
        why = failed.get(item.name) or failed.get(item.kind) or failed.get("", "")
        is_gone = not os.path.lexists(item.name) if item.kind == "CDI file" else is_cleared or item.kind == "claim"
        if is_cleared and not is_gone:
            why = "it still exists; remove it by hand"
        yield dataclasses.replace(item, error=why, removed=is_gone and not why)
    listed = {"", *(item.name for item in own), *(item.kind for item in own)}
    # After a loss of the journal, only the CDI files name some claims.
    yield from (Item(driver=driver, kind="claim", name=name, error=why) for name, why in failed.items() if name not in listed)


def _node_cleared(family: composition.NodeFamily) -> Iterator[tuple[str, str]]:
    """Release all claims and remove the driver's leftovers; yield each failure as the name or kind of the item, and the error."""
    try:
        with local_node.LocalNode.open(family.spec, family.folders, views.Nowhere()) as opened:
            is_started = isinstance(opened.author, advanced.Removable)
            if is_started:
                # The driver reads its state of moved interfaces when it starts.
                opened.author.start(opened.context)
            try:
                yield from _undone(opened)
            finally:
                if is_started:
                    opened.author.stop()
    except errors.DrakitError as error:
        yield "", str(error)


def _undone(opened: local_node.LocalNode) -> Iterator[tuple[str, str]]:
    refs = [*(entry.claim for entry in opened.journal.entries()), *map(resolution.unknown_ref, opened.restorer.missing())]
    refs = list({ref.uid: ref for ref in refs}.values())
    answers = opened.unprepare(refs, prepare.Present())
    yield from ((str(ref), answers[ref.uid]) for ref in refs if answers[ref.uid])
    if not any(answers.values()) and isinstance(opened.author, advanced.Removable):
        opened.author.remove_leftovers()
        yield from ((name, "it still exists; run the command again") for name in opened.author.leftovers())


def _remove_folder(family: composition.NodeFamily) -> None:
    if family.folders.home.exists():
        shutil.rmtree(family.folders.home)
    _mark(family).unlink(missing_ok=True)


def _mark(family: composition.NodeFamily) -> pathlib.Path:
    return marks.path(family.folders.cdi, family.spec.driver_name)


def _delete_slices(driver: str, cluster: Cluster) -> None:
    if cluster.api is not None:
        store = slices.ApiSlices(cluster.api, driver=driver, node=cluster.node, clock=timing.SystemClock())
        for stored in store.list():
            store.delete(stored)


def _mock_removed(settings: values.Settings, pretend: machines.Choice | None, items: Sequence[Item], *, is_there: bool) -> Iterator[Item]:
    """Remove the mock hardware's folder after the last of its drivers; yield it only if it existed before, because reading it creates it."""
    if pretend is None:
        return
    item = Item(driver="", kind="mock machine", name=str(pretend.directory))
    homes = composition.homes(settings)
    if all(item.removed for item in items) and not any(home.exists() for home in homes):
        why = _failure(lambda: shutil.rmtree(pretend.directory))
        if settings.mock.dir is None:
            with contextlib.suppress(OSError):  # Another machine's folder is in it.
                pretend.directory.parent.rmdir()
        item = dataclasses.replace(item, error=why, removed=not why)
    if is_there:
        yield item


def _failure(step: Callable[[], None]) -> str:
    """Run a step; return its error, empty if it succeeded."""
    try:
        step()
    except (errors.DrakitError, OSError) as error:
        return str(error)
    return ""


def _show(settings: values.Settings, items: Sequence[Item], style: options.Format, *, is_removed: bool, is_sure: bool) -> None:
    if style is not options.Format.TABLE:
        report = {"node": composition.node_name(settings), "removed": is_removed, "items": [dataclasses.asdict(item) for item in items]}
        output.document(report, style)
        return
    out = output.console()
    if not items:
        output.say(out, "drakit left nothing on this node")
        return
    rows = [(item.kind, item.name, item.detail, item.driver, _outcome(item, is_removed=is_removed)) for item in items]
    output.put(out, output.table("", ["KIND", "NAME", "DETAIL", "DRIVER", "STATE"], rows))
    if not is_removed:
        out.print()
        output.say(output.prose(), "Nothing was removed." if is_sure else "Nothing was removed. To remove it, add --yes.")


def _outcome(item: Item, *, is_removed: bool) -> str:
    if not is_removed:
        return item.blocks or item.error or "present"
    return "removed" if item.removed else item.error or "kept"
