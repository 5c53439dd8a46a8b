"""Certificates in files, and clients that trust their authority."""

import http.client
import pathlib
import ssl

import trustme


class TlsFiles:
    """A certificate for 127.0.0.1 and its key in a folder, which can be renewed as the kubelet renews a Secret: at once, by a link."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self._made = 0
        self.chain, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()
        self.chain.symlink_to("..data/tls.crt")
        self.key.symlink_to("..data/tls.key")

    @property
    def authority_pem(self) -> bytes:
        return self._authority.cert_pem.bytes()

    def pair(self) -> tuple[bytes, bytes]:
        """A new certificate and its key."""
        issued = self._authority.issue_cert("127.0.0.1")
        return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()

    def renew(self) -> None:
        self._made += 1
        chain, key = self.pair()
        version = self._folder / f"..{self._made}"
        version.mkdir()
        (version / "tls.crt").write_bytes(chain)
        (version / "tls.key").write_bytes(key)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")

    def context(self) -> ssl.SSLContext:
        """A client that trusts the authority and no other."""
        return ssl.create_default_context(cadata=self.authority_pem.decode())

    def client(self, port: int, seconds: float = 10.0) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=seconds, context=self.context())

    def post(self, port: int, body: bytes, path: str = "/validate") -> tuple[int, bytes]:
        """The status and the body of an answer."""
        connection = self.client(port)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def serial(self, port: int) -> str:
        """The serial number of the certificate that the server shows now."""
        connection = self.client(port)
        connection.connect()
        try:
            assert isinstance(connection.sock, ssl.SSLSocket)
            shown = connection.sock.getpeercert()
            assert shown is not None
            return str(shown["serialNumber"])
        finally:
            connection.close()
