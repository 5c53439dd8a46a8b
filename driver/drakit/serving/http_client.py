"""The client of the driver's own HTTP servers, on an address or a unix socket."""

import contextlib
import http
import http.client
import os
import socket

from drakit.serving import http as serving

_ASK_SECONDS = 1.0
_ANSWER_MAX = 65536


def is_driver(address: serving.Address) -> bool:
    """Return whether an instance of the driver listens at an address."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_ClientConnection(address)) as connection:
        connection.request("HEAD", "/healthz")
        return connection.getresponse().headers.get("Server", "").strip() == serving.SERVER
    return False


def ask(place: serving.Place, path: str) -> serving.Page | None:
    """Return the answer of the server at a place, None if there is no server, and an empty 502 for a server that is not HTTP."""
    try:
        with contextlib.closing(_ClientConnection(place)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return serving.Page(body=answer.read(_ANSWER_MAX), status=http.HTTPStatus(answer.status))
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except (OSError, ValueError, http.client.HTTPException):
        return serving.Page(body=b"", status=http.HTTPStatus.BAD_GATEWAY)


class _ClientConnection(http.client.HTTPConnection):
    """A client's connection to an address or a unix socket."""

    def __init__(self, place: serving.Place) -> None:
        host, port = (place.host, place.port) if isinstance(place, serving.Address) else ("localhost", 0)
        super().__init__(host, port, timeout=_ASK_SECONDS)
        self._place = place

    def connect(self) -> None:
        if isinstance(self._place, serving.Address):
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ASK_SECONDS)
        self.sock.connect(os.fspath(self._place))
