"""The certificate of a TLS server, read again when its files change, so that it can be renewed without a restart.

Invariant: connections always get the newest pair of certificate and key that could be loaded. A pair that does not match, as between the writes of
its two files, is ignored; the next change of a file is another attempt.
"""

import pathlib
import ssl
import threading
import time

from drakit.core import errors
from drakit.inputs import files
from drakit.telemetry import logs

FILE_MAX = 1 << 20
"""The largest size of a certificate chain or a key in bytes."""

_Version = tuple[tuple[int, int, int], ...]

_log = logs.get_logger(__name__)


class Certificate:
    """A certificate chain and its private key, both in PEM.

    Raises SettingsError if the first load fails; ``key`` names their settings.
    """

    def __init__(self, chain: pathlib.Path, private_key: pathlib.Path, *, key: str) -> None:
        self._chain = chain
        self._private_key = private_key
        self._guard = threading.Lock()
        self._tried = self._version()
        try:
            self._context = self._load()
        except (OSError, ValueError) as error:
            both = f"{chain} and {private_key}"
            raise errors.SettingsError(f"{both} are not a certificate and its private key in PEM: {_reason(error)}", key=key) from error
        self.loaded_at = time.time()
        """The Unix time at which the current certificate was loaded."""

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings of the next connection."""
        with self._guard:
            version = self._version()
            if version != self._tried:
                self._tried = version
                self._renew()
            return self._context

    def _renew(self) -> None:
        try:
            self._context = self._load()
        except (OSError, ValueError) as error:
            _log.warning("certificate reload failed", path=str(self._chain), error=_reason(error))
            return
        self.loaded_at = time.time()
        _log.info("certificate loaded", path=str(self._chain))

    def _version(self) -> _Version:
        """Return a value that changes when a file is written, replaced or made readable; empty if one is missing."""
        try:
            states = [path.stat() for path in (self._chain, self._private_key)]
        except OSError:
            return ()
        return tuple((state.st_ino, state.st_ctime_ns, state.st_size) for state in states)

    def _load(self) -> ssl.SSLContext:
        # OpenSSL opens the files itself, and would wait for ever for the writer of a pipe. Its error about their content names no file.
        for path in (self._chain, self._private_key):
            files.read_bytes(path, limit=FILE_MAX)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.num_tickets = 0  # A connection has one request, so there is no session to resume.
        context.load_cert_chain(
            self._chain, self._private_key, password=lambda: ""
        )  # Without a password OpenSSL asks the terminal for one.
        return context


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename} {error.strerror}"
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__
