"""The access to the API server: its address, the connections to it, and the headers that authenticate a request.

This module reads a pod's service account, and a kubeconfig with a bearer token or the file of one. The official client handles everything else
(client certificates, login programs, proxies). It is imported only then, because the import takes a tenth of a second and 18 MiB.
"""

import atexit
import base64
import contextlib
import dataclasses
import fcntl
import functools
import ipaddress
import os
import pathlib
import shutil
import socket
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import urllib3

from drakit.core import errors
from drakit.inputs import documents, file_locks, files
from drakit.telemetry import secrets

CONNECTIONS = 64
"""The size of the connection pool: more than the kubelet's calls in flight, because a connection outside the pool costs a TLS handshake."""
KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0
TOKEN_MAX = 1 << 20
KEYS_PREFIX = "drakit-keys-"
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_CLUSTER = frozenset({"server", "certificate-authority", "certificate-authority-data"})
_NAMED_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}

KUBECONFIG_MAX = 4 << 20
"""The largest size of a kubeconfig in bytes; certificates are its largest part."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Access:
    """An API server, the connections to it, and the headers that authenticate one request. ``identity`` is thread-safe."""

    server: str
    pools: urllib3.PoolManager
    identity: Callable[[], Mapping[str, str]]
    is_proxied: bool = False


class TokenFile:
    """A token in a file that the kubelet renews. While the file is unreadable the last token stays valid. Raise OSError if the first read fails."""

    def __init__(self, path: pathlib.Path, now: Callable[[], float] = lambda: time.monotonic()) -> None:  # noqa: PLW0108 - looked up at each call
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._token = self._read()
        self._read_at = now()

    def __call__(self) -> str:
        """Return the token, read again after a minute."""
        with self._lock:
            if self._now() - self._read_at >= TOKEN_SECONDS:
                self._read_at = self._now()
                with contextlib.suppress(OSError):
                    self._token = self._read() or self._token
            return self._token

    def _read(self) -> str:
        return files.read_text(self._path, limit=TOKEN_MAX).strip()


def pools(*, ca_file: pathlib.Path | None = None, ca_data: str | None = None) -> urllib3.PoolManager:
    """Return a connection pool for servers with a certificate of this authority."""
    return urllib3.PoolManager(
        cert_reqs="CERT_REQUIRED",
        ca_certs=None if ca_file is None else str(ca_file),
        ca_cert_data=ca_data,
        maxsize=CONNECTIONS,
        socket_options=KEEPALIVE,
    )


def by_token(server: str, token: Callable[[], str], *, ca_file: pathlib.Path | None = None, ca_data: str | None = None) -> Access:
    """Return the access to a server with a certificate of this authority, by a bearer token that is read at each request."""
    return Access(server=server, pools=pools(ca_file=ca_file, ca_data=ca_data), identity=lambda: {"Authorization": f"Bearer {token()}"})


def in_cluster(account: pathlib.Path = ACCOUNT) -> Access | None:
    """Return the access by the service account of the pod that this process runs in; None outside a pod."""
    host, port = (os.environ.get(name, "") for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = account / "ca.crt"
    if not (host and port and authority.is_file()) or _has_proxy(server):
        return None
    try:
        token = TokenFile(account / "token")
    except OSError:
        return None
    return by_token(server, token, ca_file=authority) if token() else None


def read_kubeconfigs(named: str) -> Mapping[pathlib.Path, Any]:
    """Return the content of a kubeconfig, or of several as KUBECONFIG lists them, by path; absent files are ignored.

    Raise SettingsError for a file that cannot be read or is not YAML.
    """
    contents = {}
    # The path of a single file may contain the path separator.
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


def check_files(contents: Mapping[pathlib.Path, Any], context: str = "") -> None:
    """Raise SettingsError for a file that the context's cluster or user names and that cannot be read, or is a pipe, a device or a folder.

    The TLS library and the official client open such files without a time limit, so a pipe would hold up the process. A missing file is their error.
    """
    current = context or next((config["current-context"] for config in contents.values() if _entries(config, "current-context")), "")
    selected = list(_selected(contents, "context", current))
    for kind, fields in _NAMED_FILES.items():
        name = next((entry[kind] for _, entry in selected if isinstance(entry.get(kind), str)), "")
        for folder, entry in _selected(contents, kind, name):
            for field in fields:
                if isinstance(entry.get(field), str) and entry[field]:
                    _check_file(folder / entry[field], f"{kind}s[{name}].{field}")


def _check_file(path: pathlib.Path, field: str) -> None:
    try:
        files.read_bytes(path, limit=KUBECONFIG_MAX)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.SettingsError(f"cannot use {field} {path}: {error.strerror}", key="kubeconfig") from error


def _selected(contents: Mapping[pathlib.Path, Any], kind: str, name: object) -> Iterator[tuple[pathlib.Path, Mapping[str, Any]]]:
    """Yield the readable entries of this kind and name of all kubeconfigs, each with the folder that its paths are relative to."""
    for path, config in contents.items():
        for entry in _entries(config, f"{kind}s") or ():
            if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(kind), Mapping):
                yield path.parent, entry[kind]


def _entries(config: object, field: str) -> Any:
    value = config.get(field) if isinstance(config, Mapping) else None
    return value if isinstance(value, str if field == "current-context" else list) else None


def of_kubeconfig(contents: Mapping[pathlib.Path, Any], context: str = "") -> Access | None:
    """Return the access by a single kubeconfig whose context has a server, its authority and a token, and nothing else; None for any other."""
    if len(contents) != 1:
        return None
    ((path, config),) = contents.items()
    try:
        return _by_token(config, path.parent, context)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _by_token(config: Mapping[str, object], folder: pathlib.Path, context: str) -> Access | None:
    selected = _named(config, "context", context or str(config["current-context"]))
    cluster, user = _named(config, "cluster", str(selected["cluster"])), _named(config, "user", str(selected["user"]))
    server, data = cluster["server"], cluster.get("certificate-authority-data")
    authority = cluster.get("certificate-authority")
    has_one_authority = bool(data) != bool(authority) or (str(server).startswith("http:") and not data and not authority)
    if cluster.keys() - _CLUSTER or not has_one_authority or not isinstance(server, str):
        return None
    token = _token_of(user, folder)
    if token is None or not token() or _has_proxy(server) or (authority and not (folder / str(authority)).is_file()):
        return None
    return by_token(
        server,
        token,
        ca_file=folder / str(authority) if authority else None,
        ca_data=base64.b64decode(str(data), validate=True).decode() if data else None,
    )


def _token_of(user: Mapping[str, object], folder: pathlib.Path) -> Callable[[], str] | None:
    """Return the bearer token of a kubeconfig's user, None where the user has other credentials. A file has precedence, as in client-go.

    Raise OSError where the file cannot be read.
    """
    token, file = user.get("token"), user.get("tokenFile")
    if user.keys() - {"token", "tokenFile"}:
        return None
    if isinstance(file, str) and file:
        return TokenFile(folder / file)
    return (lambda: token) if isinstance(token, str) else None


def _named(config: Mapping[str, object], kind: str, name: str) -> Mapping[str, object]:
    """Return the entry of this kind and name in a kubeconfig. Raise ValueError unless there is exactly one."""
    listed = config[f"{kind}s"]
    entries = [entry[kind] for entry in listed if entry["name"] == name] if isinstance(listed, list) else []
    if len(entries) != 1 or not isinstance(entries[0], Mapping):
        raise ValueError(f"{kind} {name}")
    return entries[0]


def _has_proxy(server: str) -> bool:
    """Return whether the environment names a proxy that may apply to this server."""
    return not is_loopback(server) and any(os.environ.get(name) for name in _PROXIES)


def is_loopback(server: str) -> bool:
    """Return whether a server is on this machine; a proxy of the environment cannot reach it then."""
    host = urllib.parse.urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def official(named: str, context: str) -> Access:
    """Return the access by the official client from a kubeconfig or the pod's service account. Raise SettingsError."""
    from kubernetes import config  # noqa: PLC0415 - see the module's docstring
    from kubernetes.client import configuration, rest  # noqa: PLC0415

    settings, folder = configuration.Configuration(), key_folder() if named else None
    try:
        if named:
            config.load_kube_config(
                config_file=named,
                context=context or None,
                client_configuration=settings,
                persist_config=False,
                temp_file_path=str(folder) if folder else None,
            )
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, *documents.LOADING_ERRORS, OSError, TypeError, AttributeError) as error:
        hint = f"cannot use kubeconfig {named}" if named else "no kubeconfig is given, and this process does not run in a cluster"
        raise errors.SettingsError(f"{hint}: {secrets.one_line(str(error))}", key="kubeconfig") from error
    settings.socket_options, settings.connection_pool_maxsize = KEEPALIVE, CONNECTIONS
    if is_loopback(settings.host):
        settings.proxy = None
    authenticating = threading.Lock()

    def identity() -> Mapping[str, str]:
        # ``auth_settings`` renews a token that is about to expire; only one thread at a time may do that.
        with authenticating:
            credentials = settings.auth_settings().values()
        return {entry["key"]: entry["value"] for entry in credentials if entry["value"]}

    connections = rest.RESTClientObject(settings).pool_manager
    return Access(server=settings.host, pools=connections, identity=identity, is_proxied=bool(settings.proxy))


@functools.cache
def key_folder() -> pathlib.Path | None:
    """Return the folder of this process for certificates and keys from kubeconfigs; None where no temporary file can be created.

    TLS libraries read them from files only. The folder has mode 0700 and is removed when the process ends. The next process that needs such a folder
    removes those of killed processes; a living process holds an flock on its folder.
    """
    with contextlib.suppress(OSError):
        parent = pathlib.Path(tempfile.gettempdir())
        sweep_key_folders(parent)
        while True:
            folder = pathlib.Path(tempfile.mkdtemp(prefix=KEYS_PREFIX, dir=parent))
            if _lock_folder(folder):
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                return folder
    return None


def sweep_key_folders(parent: pathlib.Path) -> None:
    """Remove the key folders of ended processes of this user."""
    for folder in parent.glob(f"{KEYS_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                _remove_unlocked(folder)


def _lock_folder(folder: pathlib.Path) -> bool:
    """Lock a folder until this process ends; return False if another process has removed it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        file_locks.take(descriptor)
    except FileNotFoundError:
        return False
    if folder.exists():
        return True
    os.close(descriptor)
    return False


def _remove_unlocked(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)
