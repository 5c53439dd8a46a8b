"""The driver's process, and the parent that forks it: Python and all libraries are loaded once, so that a restart costs milliseconds.

The parent reads orders (JSON lines) from standard input and tells on standard output which process it made and which ended. It has one thread
and never opens a gRPC channel or a connection, so that forking it is sound. A driver's log goes to standard error, which is a pipe: no full disk and
no limit stops it.
"""

import contextlib
import ctypes
import dataclasses
import datetime
import gc
import json
import os
import pathlib
import queue
import selectors
import signal
import sys
import threading
import time
import traceback

import kubernetes.config  # noqa: F401 - loaded before the first fork

from drakit.core import errors
from drakit.kube import claims, client, events, slices, status
from drakit.node import background, device_status, engine, local_node, node
from drakit.telemetry import logs
from fakes.fault_schedule import hardware

NAME = hardware.FaultyDriver.name
HURRY = 100.0
"""The driver's clock runs so many times faster, so that no schedule waits out a back-off."""
STOPPED, CANNOT_START, PART_DIED, BUG = 0, 3, 70, 71
_LINUX_CAPABILITY_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER = 1, 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """Where a driver works: paths, and the node's name; ``instance`` tells the two processes of a rolling update apart."""

    node: str
    home: str
    cdi: str
    registry: str
    kubeconfig: str
    machine: str
    instance: str = ""


class HurriedClock:
    """``ports.Clock`` that runs fast; the wall clock is off by what ``control/clock@SECONDS`` says."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=int(hardware.knob(self._root, hardware.CLOCK) or 0))

    def monotonic(self) -> float:
        return time.monotonic() * HURRY

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds / HURRY)


def main() -> None:
    """The parent: make a driver for every order until standard input ends."""
    waker, waking = os.pipe()
    os.set_blocking(waking, False)
    gc.freeze()  # A driver does not go through what was imported.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(waker, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if waker in ready:
                os.read(waker, 4096)
                _tell_of_ends()
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                _begin(Order(**json.loads(line)), close=(waker, waking))


def _begin(order: Order, close: tuple[int, ...]) -> None:
    child = os.fork()
    if child:
        _tell({"made": child})
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in close:
        os.close(descriptor)
    code = BUG
    try:
        code = serve(order)
    except BaseException:  # noqa: BLE001 - the process ends here, and nothing else prints it
        traceback.print_exc()
    finally:
        os._exit(code)


def _tell_of_ends() -> None:
    while True:
        try:
            child, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        _tell({"ended": child, "code": os.waitstatus_to_exitcode(code)})


def _tell(what: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _is_asked(asked: "queue.SimpleQueue[int]") -> bool:
    """Whether the driver is to end; waits a moment for that."""
    try:
        asked.get(timeout=0.02)
    except queue.Empty:
        return False
    return True


def serve(order: Order) -> int:
    """Serve until SIGTERM or the death of a part; how it ended."""
    # A signal's own code may not set an Event, whose lock the wait that it interrupts may hold.
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, _: asked.put(number))
    signal.signal(signal.SIGUSR1, lambda *_: _tell_threads())
    _obey_file_modes()
    logs.setup(level=logs.Level.INFO, style=logs.Style.JSON, stream=sys.stderr)
    log = logs.get_logger("storm")
    closing = contextlib.ExitStack()
    try:
        # The keys of a kubeconfig go to a temporary file, so that a full disk is an error here already.
        api = client.connect(pathlib.Path(order.kubeconfig), seconds=5.0)
        closing.callback(api.close)
        serving = build(order, api)
        closing.callback(serving.stop)
        serving.start()
        log.info("driver serves", pid=os.getpid())
        while not _is_asked(asked):
            if serving.failed.is_set():
                return PART_DIED
    except errors.DrakitError as error:
        log.error("driver cannot start", error=str(error))  # noqa: TRY400 - an operator's matter, without a trace
        return CANNOT_START
    except Exception:
        log.exception("driver died")
        return BUG
    else:
        return STOPPED
    finally:
        closing.close()


def build(order: Order, api: client.Client) -> node.Node:
    """The node as ``drakit run`` makes it, on a clock that hurries."""
    root = pathlib.Path(order.machine)
    ticking = HurriedClock(root)
    driver = hardware.FaultyDriver(hardware.FolderHardware(root))
    statuses = status.ApiStatuses(api, status.Writer(driver=NAME, node=order.node, pool=order.node), ticking)
    outside = node.NodeDependencies(
        claim_source=claims.ApiClaims(api, seen=statuses.seen),
        slice_store=slices.ApiSlices(api, driver=NAME, node=order.node, clock=ticking),
        registry=pathlib.Path(order.registry),
        clock=ticking,
        rescan_seconds=5.0,
        instance=order.instance,
        api=background.ApiPorts(
            statuses=statuses,
            events=events.ApiEvents(api, component=NAME, host=order.node),
            claim_list=claims.ApiClaimList(api),
            bindings=claims.ApiBindings(api, driver=NAME, pool=order.node, clock=ticking),
            conditions=device_status.Conditions.ALWAYS,
        ),
    )
    spec = local_node.DriverSpec(
        driver_name=NAME, build=lambda _: driver, identity=engine.NodeIdentity(pool=order.node, boot_id=hardware.boot_id(root))
    )
    folders = local_node.Folders(home=pathlib.Path(order.home), cdi=pathlib.Path(order.cdi))
    return node.Node(spec, folders, outside, node_name=order.node)


def _tell_threads() -> None:
    names = sorted(thread.name for thread in threading.enumerate())
    os.write(2, (json.dumps({"thread_names": names}) + "\n").encode())


def _obey_file_modes() -> None:
    """Give up root's right to write where the mode forbids it, so that a read-only folder is one for root too."""
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, sets):
        return
    mask = ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH | 1 << _FOWNER) & 0xFFFFFFFF
    for index in (0, 1):
        sets[index] &= mask
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    main()
