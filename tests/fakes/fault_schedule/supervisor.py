"""Keeps a driver process running on a node as a DaemonSet does: started again whenever it ends, whatever ended it."""

import collections
import contextlib
import dataclasses
import json
import os
import queue
import resource
import signal
import threading
from collections.abc import Callable
from typing import IO

from fakes import forked_cli, waits
from fakes.fault_schedule import process

LOG_LINES = 3000
PAUSE_SECONDS = 0.03
ASK_SECONDS = 0.5


class Parent:
    """The process that forks drivers. ``log`` holds what they wrote last."""

    def __init__(self, commands: forked_cli.Commands) -> None:
        self.log: collections.deque[str] = collections.deque(maxlen=LOG_LINES)
        self.threads: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ends: dict[int, Callable[[int], None]] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._ending = contextlib.ExitStack()
        errors, writer = os.pipe()
        self._errors = self._ending.enter_context(os.fdopen(errors))
        self._process = self._ending.enter_context(commands.talk("-m", "fakes.fault_schedule.process", error=writer))
        os.close(writer)
        self._readers = [
            threading.Thread(target=self._follow, args=(self._process.stdout, self._on_line), daemon=True),
            threading.Thread(target=self._follow, args=(self._errors, self._logged), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def make(self, order: process.Order, ended: Callable[[int], None]) -> int | None:
        """Fork a driver; its process id, None where it has ended already. ``ended`` is called with how it ended."""
        with self._making:
            self._process.say(json.dumps(dataclasses.asdict(order)))
            child = self._made.get(timeout=waits.SECONDS)
        with self._lock:
            early = self._early.pop(child, None)
            if early is None:
                self._ends[child] = ended
        if early is not None:
            ended(early)
            return None
        return child

    def close(self) -> None:
        """End the parent; drivers must be stopped before."""
        self._process.stdin.close()
        self._process.wait()
        for reader in self._readers:
            reader.join(waits.SECONDS)
        self._ending.close()

    def _follow(self, stream: IO[str], take: Callable[[str], None]) -> None:
        for line in stream:
            take(line.rstrip())

    def _on_line(self, line: str) -> None:
        result = json.loads(line)
        if "made" in result:
            self._made.put(result["made"])
            return
        with self._lock:
            ended = self._ends.pop(result["ended"], None)
            if ended is None:
                self._early[result["ended"]] = result["code"]
        if ended is not None:
            ended(result["code"])

    def _logged(self, line: str) -> None:
        with contextlib.suppress(ValueError):
            result = json.loads(line)
            if isinstance(result, dict) and "thread_names" in result:
                self.threads.put(result["thread_names"])
                return
        self.log.append(line)


class Supervisor:
    """One node's driver. ``ends`` are the ends of its processes: which start it was, and the exit code, negative for signals."""

    def __init__(self, parent: Parent, order: process.Order) -> None:
        self._parent = parent
        self._order = order
        self._wanted = False
        self._changed = threading.Condition()
        self._child: int | None = None
        self._full = False
        self.ends: list[tuple[int, int]] = []
        self.starts = 0
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._closed = False
        self._thread.start()

    @property
    def child(self) -> int | None:
        """The process that runs now."""
        return self._child

    def start(self) -> None:
        """Have a driver from now on."""
        with self._changed:
            self._wanted = True
            self._changed.notify_all()

    @property
    def is_wanted(self) -> bool:
        """Whether there is to be a driver."""
        return self._wanted

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Have none, and wait until the last has ended."""
        with self._changed:
            self._wanted = False
            self._changed.notify_all()
        self.send(number)
        with self._changed:
            assert self._changed.wait_for(lambda: self._child is None, waits.SECONDS), "the driver does not stop"

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(waits.SECONDS)

    def send(self, number: signal.Signals) -> None:
        """A signal to the process that runs now, if any."""
        with self._changed:
            if self._child is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._child, number)

    def fill_disk(self, *, full: bool) -> None:
        """Let no file of the driver grow: every write fails as on a full disk (EFBIG in place of ENOSPC)."""
        with self._changed:
            self._full = full
            self._limit()

    def threads(self) -> list[str]:
        """The names of the driver's threads; asked again where it was just being started."""
        for _ in range(int(waits.SECONDS / ASK_SECONDS)):
            self.send(signal.SIGUSR1)
            with contextlib.suppress(queue.Empty):
                return self._parent.threads.get(timeout=ASK_SECONDS)
        raise AssertionError("the driver does not tell its threads")

    def _limit(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(self._child, resource.RLIMIT_FSIZE)
                resource.prlimit(self._child, resource.RLIMIT_FSIZE, (0 if self._full else hard, hard))

    def _keep(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._wanted and self._child is None))
                if self._closed:
                    return
                self.starts += 1
                self._child = self._parent.make(self._order, self._ended)
                self._limit()
            threading.Event().wait(PAUSE_SECONDS)

    def _ended(self, code: int) -> None:
        with self._changed:
            self.ends.append((self.starts, code))
            self._child = None
            self._changed.notify_all()
