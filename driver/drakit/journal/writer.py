"""Group commit: changes asked for at the same time share one fsync, and whoever comes first writes for all.

A caller hands over a change (a function of the connection). If nobody is writing, it leads: it takes every waiting change, runs each in a savepoint
of its own inside one transaction, commits, and wakes the callers; then it hands the lead to the first that came meanwhile. A caller alone thus
pays no switch of threads. A change that raised gives its error to its caller and leaves no trace; the others are durable. When SQLite itself
fails, nothing of the batch counts, every caller is told, and the next batch starts on a new connection.
"""

import collections
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Sequence

from drakit.core import errors
from drakit.journal import connection as connections

Change = Callable[[sqlite3.Connection], None]


class _Waiting:
    """A change, and whoever waits for it: woken when it is done, or to lead."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.error: BaseException | None = None
        self.is_done = False
        self.woken = threading.Event()


class Writer:
    """The only writer of a journal in this process."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._turn = threading.Condition()
        self._is_led = False
        self._closed = False
        self._is_durable = True

    def relax(self) -> None:
        """Let commits from now on return when the kernel has them; changes that wait already may still be synced."""
        with self._turn:
            self._turn.wait_for(lambda: not self._is_led)
            self._is_durable = False
            self._disconnect()

    def commit(self, change: Change) -> None:
        """Run a change and return when it is durable; raises what it raised, or JournalError when it could not be written."""
        waiting = _Waiting(change)
        with self._turn:
            if self._closed:
                raise errors.JournalError(f"{self._path} is closed; open the journal again")
            self._waiting.append(waiting)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            waiting.woken.wait()
        if not waiting.is_done:
            self._lead()
        if isinstance(waiting.error, sqlite3.Error):
            raise connections.refusal(self._path, waiting.error) from waiting.error
        if waiting.error is not None:
            raise waiting.error

    def close(self) -> None:
        """Wait until what was handed over is written, then end; twice is fine."""
        with self._turn:
            self._closed = True
            self._turn.wait_for(lambda: not self._is_led)
            self._disconnect()

    def _lead(self) -> None:
        """Write everything that waits, wake those it belongs to, and hand on."""
        with self._turn:
            batch = tuple(self._waiting)
            self._waiting.clear()
        try:
            self._write(batch)
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait must be woken and told; the leader raises it again
            if isinstance(error, sqlite3.Error):
                self._disconnect()
            for waiting in batch:
                waiting.error = error
        self._hand_on()
        for waiting in batch:
            waiting.is_done = True
            waiting.woken.set()

    def _hand_on(self) -> None:
        with self._turn:
            if self._waiting:
                self._waiting[0].woken.set()
            else:
                self._is_led = False
                self._turn.notify_all()

    def _write(self, batch: Sequence[_Waiting]) -> None:
        if self._connection is None:
            self._connection = connections.connect_writer(self._path, is_durable=self._is_durable)
        with connections.transaction(self._connection):
            if len(batch) == 1:
                # The transaction itself takes the place of a savepoint: what fails takes nobody with it.
                batch[0].change(self._connection)
                return
            for waiting in batch:
                waiting.error = _attempt(self._connection, waiting.change)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _attempt(connection: sqlite3.Connection, change: Change) -> Exception | None:
    """Run a change in a savepoint; the error it raised, its effects undone. An error of SQLite is the whole batch's and is raised."""
    connection.execute("SAVEPOINT change")
    failure: Exception | None = None
    try:
        change(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits
        connection.execute("ROLLBACK TO change")
        failure = error
    connection.execute("RELEASE change")
    return failure
