"""How the API server is reached, for the two plain cases: a pod's service account, and a kubeconfig with a bearer token.

They need nothing of the official client, whose import takes a tenth of a second and 12 MiB of a driver's memory. Whatever else there may be (client
certificates, programs that log in, proxies) is not decided here: the functions then return None, and ``client`` asks the official client.
"""

import base64
import contextlib
import dataclasses
import functools
import ipaddress
import os
import pathlib
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import urllib3

from drakit.core import errors
from drakit.inputs import documents, files
from drakit.kube import direct

CONNECTIONS = 64
"""Connections that are kept: more than calls of the kubelet in flight, because one that is not kept costs a TLS handshake each time."""
KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_CLUSTER = frozenset({"server", "certificate-authority", "certificate-authority-data"})

KUBECONFIG_MAX = 4 << 20
"""Bytes of a kubeconfig; certificates are the largest part of one."""


class Access(Protocol):
    """A server, the connections to it, and who asks."""

    @property
    def server(self) -> str:
        """Its address."""

    @property
    def pools(self) -> urllib3.PoolManager:
        """Connections."""

    @property
    def is_proxied(self) -> bool:
        """Whether a proxy stands before the server."""

    @property
    def straight(self) -> direct.Direct | None:
        """The short way for all but watches; None where only ``pools`` know how to connect."""

    def identity(self) -> Mapping[str, str]:
        """Headers that say who asks, good for one request; safe from several threads."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain:
    """``Access`` by a bearer token, which is asked for at each request."""

    server: str
    pools: urllib3.PoolManager
    token: Callable[[], str]
    is_proxied: bool = False
    straight: direct.Direct | None = None

    def identity(self) -> Mapping[str, str]:
        """The token as a header."""
        return {"Authorization": f"Bearer {self.token()}"}


class TokenFile:
    """A token that somebody renews in a file; one that cannot be read for a moment has not changed. Raises OSError if it never could."""

    def __init__(self, path: pathlib.Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._token = path.read_text().strip()
        self._read_at = now()

    def __call__(self) -> str:
        """The token, not older than a minute."""
        with self._lock:
            if self._now() - self._read_at >= TOKEN_SECONDS:
                self._read_at = self._now()
                with contextlib.suppress(OSError):
                    self._token = self._path.read_text().strip() or self._token
            return self._token


def pools(*, ca_file: pathlib.Path | None = None, ca_data: str | None = None) -> urllib3.PoolManager:
    """Connections to servers that this authority vouches for."""
    return urllib3.PoolManager(
        cert_reqs="CERT_REQUIRED",
        ca_certs=None if ca_file is None else str(ca_file),
        ca_cert_data=ca_data,
        maxsize=CONNECTIONS,
        socket_options=KEEPALIVE,
    )


def plain(server: str, token: Callable[[], str], *, ca_file: pathlib.Path | None = None, ca_data: str | None = None) -> Plain:
    """Access to a server that this authority vouches for."""
    context = functools.partial(direct.context, ca_file=None if ca_file is None else str(ca_file), ca_data=ca_data)
    straight = direct.Direct(server, keep=CONNECTIONS, options=KEEPALIVE, context=context)
    return Plain(server=server, pools=pools(ca_file=ca_file, ca_data=ca_data), token=token, straight=straight)


def in_cluster(account: pathlib.Path = ACCOUNT) -> Plain | None:
    """By the service account of the pod that this process runs in; None outside of one."""
    host, port = (os.environ.get(name, "") for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = account / "ca.crt"
    if not (host and port and authority.is_file()) or _has_proxy(server):
        return None
    try:
        token = TokenFile(account / "token")
    except OSError:
        return None
    return plain(server, token, ca_file=authority) if token() else None


def read_kubeconfigs(named: str) -> Mapping[pathlib.Path, Any]:
    """Return the content of a kubeconfig, or of several as KUBECONFIG lists them, by path; absent files are left out.

    Raises SettingsError for a file that cannot be read or is no YAML.
    """
    contents = {}
    # The path of one file may have the sign that separates paths.
    names = [named] if pathlib.Path(named).exists() else filter(None, named.split(os.pathsep))
    for path in (pathlib.Path(name).expanduser() for name in names):
        try:
            contents[path] = documents.load(files.read_text(path, limit=KUBECONFIG_MAX))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise errors.SettingsError(f"cannot use kubeconfig {path}: {error.strerror}", key="kubeconfig") from error
        except documents.DocumentError as error:
            raise errors.SettingsError(f"cannot use kubeconfig {path}: is not YAML: {error}", key="kubeconfig") from error
    return contents


def of_kubeconfig(contents: Mapping[pathlib.Path, Any], context: str = "") -> Plain | None:
    """By the only kubeconfig, if its context has a server, its authority and a token, and nothing else; None for any other."""
    if len(contents) != 1:
        return None
    ((path, config),) = contents.items()
    try:
        return _plain(config, path.parent, context)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _plain(config: Mapping[str, object], folder: pathlib.Path, context: str) -> Plain | None:
    chosen = _named(config, "context", context or str(config["current-context"]))
    cluster, user = _named(config, "cluster", str(chosen["cluster"])), _named(config, "user", str(chosen["user"]))
    server, token, data = cluster["server"], user["token"], cluster.get("certificate-authority-data")
    authority = cluster.get("certificate-authority")
    has_one_authority = bool(data) != bool(authority) or (str(server).startswith("http:") and not data and not authority)
    if cluster.keys() - _CLUSTER or user.keys() != {"token"} or not has_one_authority or not isinstance(server, str):
        return None
    if not isinstance(token, str) or not token or _has_proxy(server) or (authority and not (folder / str(authority)).is_file()):
        return None
    return plain(
        server,
        lambda: token,
        ca_file=folder / str(authority) if authority else None,
        ca_data=base64.b64decode(str(data), validate=True).decode() if data else None,
    )


def _named(config: Mapping[str, object], kind: str, name: str) -> Mapping[str, object]:
    """What a kubeconfig says under a name; raises ValueError unless it is there just once."""
    listed = config[f"{kind}s"]
    found = [item[kind] for item in listed if item["name"] == name] if isinstance(listed, list) else []
    if len(found) != 1 or not isinstance(found[0], Mapping):
        raise ValueError(f"{kind} {name}")
    return found[0]


def _has_proxy(server: str) -> bool:
    """Whether the environment names a proxy that may be meant for this server."""
    return not is_loopback(server) and any(os.environ.get(name) for name in _PROXIES)


def is_loopback(server: str) -> bool:
    """Whether a server is on this machine; no proxy of the environment can reach it then."""
    host = urllib.parse.urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
