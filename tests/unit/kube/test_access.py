"""The two plain ways to the API server: what they take, and what they leave to the official client."""

import base64
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from drakit.core import errors
from drakit.kube import access, client

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()
PLAIN_CLUSTER: dict[str, Any] = {"server": "https://192.0.2.1:6443", "certificate-authority-data": DATA}


def write(folder: pathlib.Path, cluster: Any = None, user: Any = None, **top: Any) -> pathlib.Path:
    config = {
        "clusters": [{"name": "c", "cluster": PLAIN_CLUSTER if cluster is None else cluster}],
        "users": [{"name": "u", "user": {"token": "abc"} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **top,
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def of_kubeconfig(path: pathlib.Path, context: str = "") -> access.Access | None:
    return access.of_kubeconfig(access.read_kubeconfigs(str(path)), context)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_a_server_its_authority_and_a_token_are_enough(tmp_path: pathlib.Path) -> None:
    found = of_kubeconfig(write(tmp_path))
    assert found is not None
    assert (found.server, found.identity(), found.is_proxied) == ("https://192.0.2.1:6443", {"Authorization": "Bearer abc"}, False)
    assert found.pools.connection_pool_kw["ca_cert_data"] == PEM
    assert found.pools.connection_pool_kw["cert_reqs"] == "CERT_REQUIRED"


def test_a_file_of_the_authority_is_found_beside_the_kubeconfig(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    found = of_kubeconfig(write(tmp_path, {"server": "https://192.0.2.1", "certificate-authority": "ca.crt"}))
    assert found is not None
    assert found.pools.connection_pool_kw["ca_certs"] == str(tmp_path / "ca.crt")


def test_another_context_may_be_named(tmp_path: pathlib.Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("x", "y")]
    path = write(tmp_path, contexts=contexts, **{"current-context": "nowhere"})
    assert of_kubeconfig(path) is None
    assert of_kubeconfig(path, "y") is not None


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": "https://192.0.2.1"},
        {**PLAIN_CLUSTER, "insecure-skip-tls-verify": True},
        {**PLAIN_CLUSTER, "proxy-url": "http://192.0.2.2"},
        {**PLAIN_CLUSTER, "tls-server-name": "kubernetes"},
        {**PLAIN_CLUSTER, "certificate-authority": "ca.crt"},
        {"server": "https://192.0.2.1", "certificate-authority": "missing.crt"},
        {**PLAIN_CLUSTER, "certificate-authority-data": "no base64!"},
        {**PLAIN_CLUSTER, "server": 7},
        {},
        [],
    ],
)
def test_a_cluster_that_says_more_or_less_is_left_to_the_official_client(tmp_path: pathlib.Path, cluster: Any) -> None:
    assert of_kubeconfig(write(tmp_path, cluster)) is None


@pytest.mark.parametrize(
    "user",
    [
        {},
        {"token": ""},
        {"token": 7},
        {"tokenFile": "/no/such/token"},
        {"client-certificate-data": DATA, "client-key-data": DATA},
        {"exec": {"command": "login"}},
    ],
)
def test_a_user_that_says_more_or_less_is_left_to_the_official_client(tmp_path: pathlib.Path, user: Any) -> None:
    assert of_kubeconfig(write(tmp_path, user=user)) is None


@pytest.mark.parametrize("text", ["", "[]", "clusters: 3\ncurrent-context: x\n"])
def test_what_is_no_kubeconfig_is_left_to_the_official_client(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    assert of_kubeconfig(tmp_path / "config") is None
    assert of_kubeconfig(tmp_path / "nothing") is None


def test_a_name_that_is_there_twice_is_left_to_the_official_client(tmp_path: pathlib.Path) -> None:
    twice = [{"name": "u", "user": {"token": token}} for token in ("one", "two")]
    assert of_kubeconfig(write(tmp_path, users=twice)) is None


def test_a_proxy_of_the_environment_is_left_to_the_official_client(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://192.0.2.2:3128")
    assert of_kubeconfig(write(tmp_path)) is None
    assert of_kubeconfig(write(tmp_path, {**PLAIN_CLUSTER, "server": "https://127.0.0.1:1"})) is not None


@pytest.mark.parametrize(
    "host,server", [("192.0.2.1", "https://192.0.2.1:443"), ("2001:db8::1", "https://[2001:db8::1]:443")], ids=["IPv4", "IPv6"]
)
def test_a_pod_asks_by_its_service_account(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("abc\n")
    assert access.in_cluster(tmp_path) is None
    (tmp_path / "ca.crt").write_text(PEM)
    found = access.in_cluster(tmp_path)
    assert found is not None
    assert (found.server, found.identity()) == (server, {"Authorization": "Bearer abc"})
    (tmp_path / "token").write_text("")
    assert access.in_cluster(tmp_path) is None
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert access.in_cluster(tmp_path) is None


@pytest.mark.parametrize("user", [{"tokenFile": "token"}, {"token": "abc", "tokenFile": "token"}])
def test_the_token_file_of_a_kubeconfig_is_read_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, user: Any) -> None:
    (tmp_path / "token").write_text("first\n")
    found = of_kubeconfig(write(tmp_path, user=user))
    assert found is not None
    assert found.identity() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    later = time.monotonic() + access.TOKEN_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert found.identity() == {"Authorization": "Bearer second"}


def test_a_pipe_in_place_of_a_token_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(OSError, match="is a pipe"):
        access.TokenFile(tmp_path / "token")
    assert of_kubeconfig(write(tmp_path, user={"tokenFile": "token"})) is None


def test_a_renewed_token_is_used_within_a_minute_and_a_missing_file_keeps_the_last(tmp_path: pathlib.Path) -> None:
    clock = [0.0]
    path = tmp_path / "token"
    path.write_text("first")
    token = access.TokenFile(path, now=lambda: clock[0])
    path.write_text("second")
    assert token() == "first"
    clock[0] = access.TOKEN_SECONDS
    assert token() == "second"
    path.unlink()
    clock[0] *= 2
    assert token() == "second"
    path.write_text("")
    clock[0] *= 2
    assert token() == "second"


OPENED: list[str] = []


@pytest.fixture
def opened() -> list[str]:
    """The paths that this process opens from now on; a hook for audits cannot be removed, so there is one for all tests."""
    if not OPENED:
        sys.addaudithook(lambda event, given: OPENED.append(str(given[0])) if event == "open" else None)
    OPENED.clear()
    return OPENED


@pytest.mark.parametrize("user,reads", [({"token": "abc"}, 1), ({"username": "a", "password": "b"}, 2)], ids=["plain", "official"])
def test_a_kubeconfig_is_read_once_and_once_more_where_the_official_client_decides(
    tmp_path: pathlib.Path, opened: list[str], user: dict[str, str], reads: int
) -> None:
    path = write(tmp_path, {"server": "http://127.0.0.1:1"}, user)
    opened.clear()
    client.connect(path).close()
    assert opened.count(str(path)) == reads


def test_a_kubeconfig_whose_path_has_a_colon_is_one_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a:b").write_text("{}")
    assert list(access.read_kubeconfigs(str(tmp_path / "a:b"))) == [tmp_path / "a:b"]
    assert list(access.read_kubeconfigs("~/a:b:~/absent")) == []
    (tmp_path / "c").write_text("{}")
    assert list(access.read_kubeconfigs("~/c:~/absent")) == [tmp_path / "c"]


NAMED_FILES = {
    "certificate-authority": ({"server": "https://192.0.2.1", "certificate-authority": "file"}, {"token": "abc"}),
    "client-certificate": (PLAIN_CLUSTER, {"client-certificate": "file", "client-key-data": DATA}),
    "client-key": (PLAIN_CLUSTER, {"client-certificate-data": DATA, "client-key": "file"}),
    "tokenFile": (PLAIN_CLUSTER, {"tokenFile": "file"}),
}


@pytest.mark.parametrize("kind, make", [("a pipe", os.mkfifo), ("a directory", os.mkdir), ("a character device", None)])
@pytest.mark.parametrize("field", NAMED_FILES)
def test_a_file_that_a_kubeconfig_names_is_refused_at_once_if_it_is_none(
    tmp_path: pathlib.Path, field: str, kind: str, make: Callable[[pathlib.Path], None] | None
) -> None:
    cluster, user = NAMED_FILES[field]
    if make is None:
        (tmp_path / "file").symlink_to("/dev/zero")
    else:
        make(tmp_path / "file")
    owner = "clusters[c]" if field == "certificate-authority" else "users[u]"
    with pytest.raises(errors.SettingsError) as raised:
        client.connect(write(tmp_path, cluster, user))
    assert str(raised.value) == f"kubeconfig: cannot use {owner}.{field} {tmp_path / 'file'}: is {kind}" + (
        "; use - for standard input" if make is os.mkfifo else ""
    )


@pytest.mark.parametrize(
    "contents", [None, 7, [], {"contexts": 7}, {"contexts": [7], "current-context": ["x"]}, {"contexts": [{"name": "x"}]}]
)
def test_the_check_of_named_files_leaves_malformed_kubeconfigs_to_the_client(contents: object) -> None:
    access.check_files({pathlib.Path("/nowhere/config"): contents}, "x")
