"""``drakit top``: what waits, what fits and who uses which device, in the terminal."""

import contextlib
import datetime
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import rich.control
import rich.text
import typer

from drakit import extras
from drakit.cli import composition, options, output, process, terminal
from drakit.core import errors
from drakit.core.encoding import wire
from drakit.telemetry import logs
from drakit_tools import manifests as sources

if TYPE_CHECKING:
    import rich.console

    from drakit_tools.dashboard import model

_SHORTEST = 0.5


@options.quietly
@sources.answering()
def top(
    given: sources.Given = None,
    files: sources.Files = None,
    live: sources.Live = False,
    kubeconfig: sources.Kubeconfig = None,
    mock: options.Mock = None,
    folder: options.Folder = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="Show only this node, with all its devices; with --mock, its name. May be repeated."),
    ] = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the state once. This is the default where the output is not a terminal.")
    ] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="SECONDS", min=_SHORTEST, help="Time between two updates.")] = 2.0,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Show what waits and why, what still fits, and who uses which device, in the terminal until Ctrl-C.

    It shows this node, with the sensors of its GPUs; or all nodes of a cluster (--live), with the pods that use each device; or the objects of files.
    With more than four nodes each is one line, and --node shows one of them. The page of drakit dashboard has the same.

    Exit status is 0, or 2 for invalid input.

    [bold]Examples[/bold]

      drakit top --mock dgx-a100-40gb-2gpu

      drakit top --live --node node-1

      kubectl get resourceslices,resourceclaims,pods -A -o yaml | drakit top -
    """
    with contextlib.ExitStack() as stack:
        wanted = [*(given or []), *(files or [])]
        is_live = live or kubeconfig is not None
        if is_live + bool(wanted) + (mock is not None) > 1:
            raise errors.ConfigError("--live, --mock and files exclude each other; choose one")
        is_once = once or bool(wanted) or form is not options.Format.TABLE or not terminal.is_terminal(terminal.console())
        if wanted:
            read = _of_files(wanted)
        elif is_live:
            read = stack.enter_context(of_cluster(kubeconfig, is_once=is_once))
        else:
            from drakit_tools.dashboard import node_source

            settings = options.read(
                config=config, assignments=assignments, mock=mock, folder=folder, node=options.one_node(nodes), local=True
            )
            output.note(composition.unserved_note(settings, families or ()))
            read = node_source.NodeSource(settings, only=families or ()).state
        if (is_live or wanted) and nodes:
            read = _of_nodes(read, nodes, must_exist=is_once)
        if is_once:
            _put(read(), form)
        else:
            _follow(read, interval)


def _of_files(files: list[str]) -> "Callable[[], model.State]":
    extras.require_local_cluster()
    from drakit_tools.dashboard import cluster_state, listing

    found, note = listing.of_files(files)
    output.note(note)
    return lambda: cluster_state.Reader("files").state(found)


@contextlib.contextmanager
def of_cluster(kubeconfig: pathlib.Path | None, *, is_once: bool) -> "Iterator[Callable[[], model.State]]":
    """Yield a function that returns the state of a cluster, which is watched unless it is needed once."""
    from drakit.kube import client
    from drakit.node import timing
    from drakit_tools.dashboard import cluster_source, cluster_state, listing

    with contextlib.closing(client.connect(kubeconfig)) as api:
        title = f"cluster {api.server}"
        if is_once:
            yield lambda: cluster_state.Reader(title).state(listing.of_cluster(api))
            return
        with contextlib.closing(cluster_source.ClusterSource(api, timing.SystemClock(), title)) as source:
            yield source.state


def _of_nodes(read: "Callable[[], model.State]", nodes: Sequence[str], *, must_exist: bool) -> "Callable[[], model.State]":
    """Return a function that reads the state of some nodes. Watches may not know the nodes yet, so only one read must."""
    from drakit_tools.dashboard import text

    def some() -> "model.State":
        state = read()
        names = [entry.name for entry in state.nodes]
        for node in nodes:
            if must_exist and node not in names:
                raise errors.ConfigError(f"--node: no node {node!r} has devices; {options.meant(node, names)}")
        return text.only(state, nodes)

    return some


def _put(state: "model.State", form: options.Format) -> None:
    if form is not options.Format.TABLE:
        output.document(wire.Format().encode(state), form)
        return
    out = output.console()
    for line in _lines(state, output.width(out)):
        out.print(line)


def _follow(read: "Callable[[], model.State]", interval: float) -> None:
    """Show the state on the whole screen until a signal."""
    stop = threading.Event()
    process.at_signals(stop)
    out = terminal.console()
    # The state itself says what cannot be read; a line of the log would be in the middle of the screen.
    with logs.silenced(), out.screen(hide_cursor=True) as screen:
        while not stop.is_set():
            state = read()
            shown = _fitting(_lines(state, out.width, out.height), out)
            out.control(rich.control.Control.home())
            screen.update(rich.text.Text("\n").join(shown))
            stop.wait(_SHORTEST if state.reading else interval)


def _fitting(lines: list[rich.text.Text], out: "rich.console.Console") -> list[rich.text.Text]:
    """Return the lines that fit on the screen, and how many do not."""
    room = out.height - 1
    if len(lines) <= room:
        return lines
    left = f"{len(lines) - room + 1} more lines; print all with --once, or one node with --node NAME"
    return [*lines[: room - 1], rich.text.Text(left, style="dim")]


def _lines(state: "model.State", width: int | None, height: int | None = None) -> list[rich.text.Text]:
    from drakit_tools.dashboard import text

    now = datetime.datetime.now(datetime.UTC)
    return [rich.text.Text(line.text, style=line.style, no_wrap=True) for line in text.lines(state, now=now, width=width, height=height)]
