"""The access to the API server: its address, the connections to it, and the headers that authenticate a request.

The official client reads every kubeconfig. This module reads a pod's service account, because the import of the official client takes 0.3 s and
20 MiB; a driver in a pod behind no proxy does not import it. For a kubeconfig this module adds what the official client lacks: limits and kinds of
files, the renewal of token files, and the precedence of client-go (see ADR 64).
"""

import atexit
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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import urllib3

from drakit.core import errors
from drakit.inputs import documents, file_locks, files
from drakit.telemetry import secrets

if TYPE_CHECKING:
    from kubernetes.client import configuration

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


def by_token(server: str, token: Callable[[], str], *, ca_file: pathlib.Path | None = None) -> Access:
    """Return the access to a server with a certificate of this authority, by a bearer token that is read at each request."""
    pools = urllib3.PoolManager(
        cert_reqs="CERT_REQUIRED", ca_certs=None if ca_file is None else str(ca_file), maxsize=CONNECTIONS, socket_options=KEEPALIVE
    )
    return Access(server=server, pools=pools, identity=lambda: {"Authorization": f"Bearer {token()}"})


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


def of_kubeconfig(named: str, context: str = "") -> Access:
    """Return the access by a kubeconfig, or by several as KUBECONFIG lists them. Raise SettingsError."""
    contents = read_kubeconfigs(named)
    if not contents:
        raise errors.SettingsError(f"cannot use kubeconfig {named}: it does not exist", key="kubeconfig")
    from kubernetes import config  # noqa: PLC0415 - see the module's docstring
    from kubernetes.client import configuration  # noqa: PLC0415
    from kubernetes.config import kube_config  # noqa: PLC0415

    settings, folder = configuration.Configuration(), key_folder()
    try:
        # The official client splits the path of one file at a colon, and takes the context of the last file.
        merger = kube_config.KubeConfigMerger("")
        for path in contents:
            merger.load_config(str(path))
        loader = kube_config.KubeConfigLoader(
            merger.config,
            active_context=context or next(filter(None, (content.get("current-context") for content in contents.values())), None),
            config_base_path=None,
            temp_file_path=str(folder) if folder else None,
        )
        named_files = _named_files(merger.config, loader.current_context["context"])
        for field, path in named_files.items():
            _check_file(path, field)
        loader.load_and_set(settings)
    except (config.ConfigException, *documents.LOADING_ERRORS, OSError, LookupError, TypeError, AttributeError) as error:
        raise errors.SettingsError(f"cannot use kubeconfig {named}: {secrets.one_line(str(error))}", key="kubeconfig") from error
    if not hasattr(loader, "expiry"):
        # The hook of the official client sets everything again for each request, 0.1 ms; only credentials that expire need it.
        settings.refresh_api_key_hook = None
    for field, path in named_files.items():
        if field.endswith(".tokenFile"):
            _renew_token(settings, path)
    return _access(settings)


def _named_files(config: Any, selected: Mapping[str, str]) -> Mapping[str, pathlib.Path]:
    """Return the files that the context's cluster and user name, by field. ``config`` is the merged kubeconfig of the official client."""
    named = {}
    for kind, fields in _NAMED_FILES.items():
        entry = config[f"{kind}s"].get_with_name(selected.get(kind), safe=True)
        for field in fields if entry else ():
            if file := entry[kind].value.get(field):
                named[f"{kind}s[{entry['name']}].{field}"] = pathlib.Path(entry.path).parent / file
    return named


def _check_file(path: pathlib.Path, field: str) -> None:
    """Raise SettingsError for a file that cannot be read, or is a pipe, a device or a folder.

    The TLS library and the official client open such files without a time limit, so a pipe would hold up the process. A missing file is their error.
    """
    try:
        files.read_bytes(path, limit=KUBECONFIG_MAX)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.SettingsError(f"cannot use {field} {path}: {error.strerror}", key="kubeconfig") from error


def _renew_token(settings: "configuration.Configuration", path: pathlib.Path) -> None:
    """Read the token of each request from a file; the official client reads it once, with its newline.

    As in client-go, the file has precedence over a token in the kubeconfig, which is used if the file is missing or empty.
    """
    with contextlib.suppress(OSError):
        token = TokenFile(path)

        def renew(renewed: "configuration.Configuration") -> None:
            renewed.api_key["BearerToken"] = f"Bearer {token()}"

        if token():
            settings.refresh_api_key_hook = renew
            renew(settings)


def of_service_account() -> Access:
    """Return the access by the pod's service account, read by the official client, which knows proxies. Raise SettingsError outside a pod."""
    from kubernetes import config  # noqa: PLC0415 - see the module's docstring
    from kubernetes.client import configuration  # noqa: PLC0415

    settings = configuration.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        hint = "no kubeconfig is given, and this process does not run in a cluster"
        raise errors.SettingsError(f"{hint}: {secrets.one_line(str(error))}", key="kubeconfig") from error
    return _access(settings)


def _access(settings: "configuration.Configuration") -> Access:
    """Return the access by a ``kubernetes.client.Configuration``."""
    from kubernetes.client import rest  # noqa: PLC0415 - see the module's docstring

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
    return Access(server=settings.host, pools=connections, identity=identity, is_proxied=connections.proxy is not None)


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
