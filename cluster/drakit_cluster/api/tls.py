"""TLS for the local API server, and the kubeconfig that trusts it.

The keys of the authority and of the server exist only in the memory of the process. The one exception: the library passes the server's key to
OpenSSL through a temporary file that only its owner can read, and removes the file at once.
"""

import base64
import functools
import os
import pathlib
import ssl
import tempfile

import trustme

from drakit.inputs import documents
from drakit_cluster.objects.json_types import Object

LOOPBACK = "127.0.0.1"


class Authority:
    """A certificate authority of this process only, and the server's certificate for 127.0.0.1 and localhost."""

    def __init__(self) -> None:
        self._authority = trustme.CA(organization_name="drakit local cluster")
        self._certificate = self._authority.issue_cert(LOOPBACK, "localhost")

    @property
    def pem(self) -> bytes:
        """The authority's certificate, for clients to trust."""
        return self._authority.cert_pem.bytes()

    @functools.cached_property
    def server_context(self) -> ssl.SSLContext:
        """The server's side of TLS 1.2 or later."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certificate.configure_cert(context)
        return context


@functools.cache
def authority() -> Authority:
    """Return the authority of all servers of this process: making its keys and certificates takes as long as the rest of a server's start."""
    return Authority()


def client_context(pem: bytes | None) -> ssl.SSLContext:
    """Return the client's side of TLS. It trusts only this authority; with None, the authorities of the system."""
    return ssl.create_default_context(cadata=None if pem is None else pem.decode())


def kubeconfig(server: str, pem: bytes, token: str, *, user: str, cluster: str = "drakit") -> Object:
    """Return a kubeconfig with one cluster, one user and one context, all credentials inline."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": base64.b64encode(pem).decode()}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user, "namespace": "default"}}],
        "current-context": cluster,
    }


def write_kubeconfig(path: pathlib.Path, config: Object) -> None:
    """Write a kubeconfig atomically, readable only by its owner (0600); create a missing folder with 0700."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates with 0600.
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(documents.dump(config))
        pathlib.Path(name).replace(path)
    except BaseException:
        pathlib.Path(name).unlink(missing_ok=True)
        raise
