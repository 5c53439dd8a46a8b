"""Group commit: one thread writes, and what callers ask for at the same time shares one fsync.

A caller hands over a change (a function of the connection) and waits. The writer takes every waiting change, runs each in a savepoint of its
own inside one transaction, commits, and wakes the callers: one whose change raised gets its error and leaves no trace; the others are
durable. When SQLite itself fails, nothing of the batch counts, every caller is told, and the next batch starts on a new connection.
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
    """A change, and whoever waits for it."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.error: Exception | None = None
        self.done = threading.Event()


class Writer:
    """The only writer of a journal in this process."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self._thread.start()

    def commit(self, change: Change) -> None:
        """Run a change and return when it is durable; raises what it raised, or JournalError when it could not be written."""
        waiting = _Waiting(change)
        with self._wake:
            if self._closed:
                raise errors.JournalError(f"{self._path} is closed; open the journal again")
            self._waiting.append(waiting)
            self._wake.notify()
        waiting.done.wait()
        if isinstance(waiting.error, sqlite3.Error):
            raise connections.refusal(self._path, waiting.error) from waiting.error
        if waiting.error is not None:
            raise waiting.error

    def close(self) -> None:
        """Write what waits, then end; twice is fine."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must be woken and told
                self._disconnect()
                for waiting in batch:
                    waiting.error = error
            for waiting in batch:
                waiting.done.set()
        self._disconnect()

    def _next_batch(self) -> Sequence[_Waiting]:
        """Everything that waits, at least one; empty when closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closed)
            batch = tuple(self._waiting)
            self._waiting.clear()
            return batch

    def _write(self, batch: Sequence[_Waiting]) -> None:
        if self._connection is None:
            self._connection = connections.connect_durable(self._path)
        with connections.transaction(self._connection):
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
