"""The socket at which the driver listens for the hook's client, and its messages.

Only root of this host may call. A message has a maximum size, and a connection has a deadline. The socket is created under another name and renamed,
so that a new instance of a rolling update replaces it without a gap. It stays when the server stops, because it may belong to another instance by
then. A client without a listener waits for a while and then reports that. Where the new instance dies while this one runs, this one listens again.

Each call is one message each way over a unix socket that keeps message boundaries. A request is lines of text: ``attach 1``, claim UID, device, share
id (``-`` for a whole device), container id, sandbox id, pod UID. The last two are empty where the runtime does not report them. The message carries
one descriptor: the container's network namespace. The answer is ``ok``, or ``no`` and a sentence for the pod's owner. A client of an earlier version
may call for as long as a CDI file names it, so ``attach 1`` never changes its meaning.
"""

import collections
import contextlib
import dataclasses
import enum
import fcntl
import os
import pathlib
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import drakit


class Reason(enum.Enum):
    """The reason that a sandbox got no interface, as a metric's label."""

    HOST_NETWORK = "host_network"
    NOT_PREPARED = "not_prepared"
    TOO_LATE = "too_late"
    NAME_TAKEN = "name_taken"
    SECOND_IPVLAN = "second_ipvlan"
    MAC_TAKEN = "mac_taken"
    IN_ANOTHER_POD = "in_another_pod"
    INTERFACE_GONE = "interface_gone"
    NIC_REPLACED = "nic_replaced"
    CONFIGURATION = "configuration"
    HARDWARE = "hardware"
    OVERLOAD = "overload"
    OTHER = "other"


class RefusedError(Exception):
    """A refusal to attach a sandbox. The message is for the pod's owner."""

    def __init__(self, message: str, reason: Reason = Reason.OTHER) -> None:
        super().__init__(message)
        self.reason = reason


def reason_of(error: Exception) -> Reason:
    """Return the reason of a failed attachment by its exception."""
    match error:
        case RefusedError():
            return error.reason
        case drakit.ConfigError():
            return Reason.CONFIGURATION
        case drakit.HardwareError():
            return Reason.HARDWARE
        case drakit.CallerGoneError():
            return Reason.TOO_LATE
        case _:
            return Reason.OTHER


REQUEST_MAX = 2048
ANSWER_MAX = 1024
OK = b"ok"
NO_SHARE = "-"
_HEADER = "attach 1"
_IDENTIFIER = re.compile(r"[-._:0-9A-Za-z]{1,253}")


class MalformedError(ValueError):
    """A received message that is not a valid request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A client's request for an interface: the share, and the container that gets it."""

    claim: drakit.ClaimUid
    device: str
    share_id: drakit.ShareId | None
    container: str
    sandbox: str = ""
    pod: str = ""


def decode(message: bytes) -> Request:
    """Return the request in a message. Raises MalformedError."""
    try:
        header, claim, device, share, container, sandbox, pod = message.decode("ascii").split("\n")
    except ValueError as error:
        raise MalformedError("it is not seven lines of plain text") from error
    if header != _HEADER:
        raise MalformedError(f"it begins with {header[:64]!r}, not {_HEADER!r}")
    if not drakit.is_uid(claim) or not drakit.is_label(device) or not (share == NO_SHARE or drakit.is_uid(share)):
        raise MalformedError("it names no claim, device and share")
    if not _IDENTIFIER.fullmatch(container) or any(word and not _IDENTIFIER.fullmatch(word) for word in (sandbox, pod)):
        raise MalformedError("it names no container")
    return Request(
        claim=drakit.ClaimUid(claim),
        device=device,
        share_id=None if share == NO_SHARE else drakit.ShareId(share),
        container=container,
        sandbox=sandbox,
        pod=pod,
    )


def refusal(sentence: str) -> bytes:
    """Return the answer to a refused request: one line of at most ``ANSWER_MAX`` bytes without control characters, because runtimes print it."""
    plain = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in " ".join(sentence.split()))
    return f"no {plain}".encode(errors="replace")[:ANSWER_MAX]


SECONDS = 8
"""Seconds that a client waits for its answer."""
ANSWER_SECONDS = 1.0
"""Seconds before that at which a call ends its wait for a lock, so that the pod's owner reads which lock it is."""
DEVICE_CALLS_MAX = 128
"""The most calls for one device at a time; calls for other devices do not count. A node has at most 110 pods by default."""
UNREAD_MAX = 64
"""The most connections at a time whose request has not been read."""
LOOK_SECONDS = 2.0
"""Seconds between a server's checks that its path has a listener."""

_RECEIVE_SECONDS = 2.0
_BACKLOG = 128
_PATH_MAX = 107
_STOP_SECONDS = 10.0
_BIND_SECONDS = 5.0
_BIND_PAUSE_SECONDS = 0.02
_DESCRIPTORS_MAX = 4
_GONE = select.POLLHUP | select.POLLRDHUP | select.POLLERR
_CREDENTIALS = struct.Struct("=iII")
_log = drakit.get_logger(__name__)

Attach = Callable[[Request, int, Callable[[], bool]], None]


class Server:
    """A server for the clients at ``path``. Raises HardwareError when it cannot listen.

    Each call has a thread of its own, because a call may wait for its device's lock. Calls are limited for each device, so that a device that
    hangs delays no other. ``overloaded`` is called for each refused connection.
    """

    def __init__(self, path: pathlib.Path, attach: Attach, *, overloaded: Callable[[], None] = lambda: None) -> None:
        self._attach = attach
        self._overloaded = overloaded
        self._stopping = threading.Event()
        self._overload = drakit.Overload("nic-attach")
        self._guard = threading.Condition()
        self._unread = 0
        self._calls: collections.Counter[str] = collections.Counter()
        self._path = path
        self._socket, self._inode = listen(path)
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="nic-attach", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Accept no more calls, and wait for those in flight, ``_STOP_SECONDS`` at most. The socket's path stays."""
        self._stopping.set()
        os.write(self._wake_writer, b"!")
        self._thread.join(_STOP_SECONDS)
        with self._guard:
            if not self._guard.wait_for(lambda: not self._unread and not self._calls.total(), _STOP_SECONDS):
                _log.warning("attach calls still running", devices=sorted(+self._calls))
        self._socket.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._accept()
            except Exception as error:  # noqa: BLE001 - pods get interfaces only while this thread runs
                if self._overload.failed(error, pause=self._stopping.wait) is not None:
                    self._overloaded()

    def _accept(self) -> None:
        """Wait for a connection, and serve it in a thread. Check the socket's path where none came for a while."""
        poll = select.poll()
        for descriptor in (self._socket.fileno(), self._wake_reader):
            poll.register(descriptor, select.POLLIN)
        if not poll.poll(LOOK_SECONDS * 1000):
            self._listen_again()
        elif not self._stopping.is_set():
            self._serve_in_thread(self._socket.accept()[0])

    def _listen_again(self) -> None:
        """Listen at the path again where it has no listener, because a newer instance replaced it and died, or the socket was removed."""
        if _is_served(self._path, self._inode):
            return
        try:
            fresh, inode = listen(self._path)
        except drakit.HardwareError as error:
            _log.warning("attach socket lost", path=str(self._path), error=str(error))
            return
        self._socket.close()
        self._socket, self._inode = fresh, inode
        _log.warning("attach socket created again", path=str(self._path))

    def _serve_in_thread(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as undo:
            undo.enter_context(connection)
            with self._guard:
                if self._unread >= UNREAD_MAX:
                    self._overload.refuse(drakit.OverloadCause.CONNECTIONS)
                    self._overloaded()
                    return
                self._unread += 1
            undo.callback(self._read)
            threading.Thread(target=self._serve, args=(connection,), name="nic-attach-call", daemon=True).start()
            undo.pop_all()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as unread:
            unread.callback(self._read)
            try:
                with connection:
                    connection.settimeout(_RECEIVE_SECONDS)
                    if _is_root(connection) and not _is_probe(connection):
                        connection.send(self._answer(connection, unread))
            except OSError as error:
                _log.info("attach client disconnected", error=str(error))

    def _read(self) -> None:
        with self._guard:
            self._unread -= 1
            self._guard.notify_all()

    @contextlib.contextmanager
    def _counted(self, device: str, unread: contextlib.ExitStack) -> Iterator[None]:
        """Count a call of a device instead of an unread connection. Raises RefusedError where the device has too many."""
        with self._guard:
            is_busy = self._calls[device] >= DEVICE_CALLS_MAX
            if not is_busy:
                self._calls[device] += 1
        if is_busy:
            self._overload.refuse(drakit.OverloadCause.CONNECTIONS, device=device)
            self._overloaded()
            raise RefusedError(f"{DEVICE_CALLS_MAX} calls for {device} are in progress; the kubelet retries", Reason.OVERLOAD)
        unread.close()
        try:
            yield
        finally:
            with self._guard:
                self._calls[device] -= 1
                if not self._calls[device]:
                    del self._calls[device]
                self._guard.notify_all()

    def _answer(self, connection: socket.socket, unread: contextlib.ExitStack) -> bytes:
        deadline = time.monotonic() + SECONDS - ANSWER_SECONDS
        try:
            with _received(connection) as (request, descriptor), self._counted(request.device, unread):
                self._attach(request, descriptor, lambda: time.monotonic() < deadline and is_waiting(connection))
        except MalformedError as error:
            _log.warning("attach request malformed", error=str(error))
            return refusal(str(error))
        except (RefusedError, drakit.DrakitError) as error:
            return refusal(str(error))
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - a bug in one call must not end the thread without an answer
            _log.exception("attach failed")
            return refusal("the NIC driver failed with an internal error; see its log")
        return OK


def listen(path: pathlib.Path) -> tuple[socket.socket, int]:
    """Return a listening socket of mode 0600 that replaces any file at this path, and its inode. Raises HardwareError."""
    longest = _PATH_MAX - len(".new")
    if (length := len(os.fsencode(path))) > longest:
        raise drakit.HardwareError(
            "bind", f"the socket path {path} has {length} bytes and may have {longest}; choose a shorter node.plugins_dir"
        )
    fresh = path.with_name(f"{path.name}.new")
    try:
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.setblocking(False)  # A client may leave between poll(2) and accept(2).
            with _bind_lock(path):
                fresh.unlink(missing_ok=True)
                listener.bind(str(fresh))
                fresh.chmod(0o600)
                listener.listen(_BACKLOG)
                inode = fresh.stat().st_ino
                fresh.rename(path)
            undo.pop_all()
    except OSError as error:
        raise drakit.HardwareError("bind", f"{path}: {error.strerror or error}") from error
    return listener, inode


def _is_served(path: pathlib.Path, own: int) -> bool:
    """Return whether the path has a listener: this instance, whose socket has the inode ``own`` there, or another."""
    try:
        if path.stat().st_ino == own:
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(_RECEIVE_SECONDS)
            caller.connect(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True
    return True


def _is_probe(connection: socket.socket) -> bool:
    """Return whether the caller disconnected without a message, as another instance does to check for a listener."""
    return not connection.recv(1, socket.MSG_PEEK)


def is_waiting(connection: socket.socket) -> bool:
    """Return whether the client is still connected."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | _GONE)
    return not any(events & _GONE for _, events in poll.poll(0))


@contextlib.contextmanager
def _bind_lock(path: pathlib.Path) -> Iterator[None]:
    """Exclude other instances that bind the same path at the same time."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _BIND_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_BIND_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _is_root(connection: socket.socket) -> bool:
    """Return whether the caller is a process of the host's root. Other callers get no answer."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != 0:
        _log.warning("attach caller refused: not root", caller_pid=pid, caller_uid=uid)
    return bool(uid == 0)


@contextlib.contextmanager
def _received(connection: socket.socket) -> Iterator[tuple[Request, int]]:
    """Yield the request and its descriptor, and close the descriptor afterwards. Raises MalformedError."""
    message, descriptors, flags, _ = socket.recv_fds(connection, REQUEST_MAX + 1, _DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC)
    try:
        if len(message) > REQUEST_MAX or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise MalformedError("it is too long")
        if len(descriptors) != 1:
            raise MalformedError(f"it came with {len(descriptors)} descriptors, not one")
        yield decode(message), descriptors[0]
    finally:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # close(2) releases the descriptor also where it fails.
                os.close(descriptor)
