"""How a kubeconfig and a pod's service account become connections and credentials."""

import base64
import os
import pathlib
import ssl
import subprocess
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


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_a_token_is_sent_only_to_a_server_of_the_kubeconfigs_authority(tmp_path: pathlib.Path) -> None:
    result = access.of_kubeconfig(str(write(tmp_path)))
    assert (result.server, result.identity(), result.is_proxied) == ("https://192.0.2.1:6443", {"authorization": "Bearer abc"}, False)
    assert pathlib.Path(result.pools.connection_pool_kw["ca_certs"]).read_text() == PEM
    assert result.pools.connection_pool_kw["cert_reqs"] is ssl.CERT_REQUIRED


def test_files_are_relative_to_the_kubeconfig_that_names_them(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a:b", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.crt").write_text(PEM)
        (tmp_path / name / "token").write_text(f"{name}\n")
        write(tmp_path / name, {"server": "https://192.0.2.1", "certificate-authority": "ca.crt"}, {"tokenFile": "token"})
    result = access.of_kubeconfig(str(tmp_path / "a:b" / "config"))
    assert result.identity() == {"authorization": "Bearer a:b"}
    assert result.pools.connection_pool_kw["ca_certs"] == str(tmp_path / "a:b" / "ca.crt")
    several = access.of_kubeconfig(f"~/absent:~/two/config:{write(tmp_path)}")
    assert several.identity() == {"authorization": "Bearer two"}, "the first file has precedence"


def test_the_first_file_of_several_gives_the_context(tmp_path: pathlib.Path) -> None:
    named = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        config = {
            "clusters": [{"name": name, "cluster": {**PLAIN_CLUSTER, "server": f"https://{name}.example.com"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}}],
            "current-context": name,
        }
        named.append(str(write(tmp_path / name, **config)))
    assert access.of_kubeconfig(":".join(named)).server == "https://one.example.com"
    assert access.of_kubeconfig(":".join(named), "two").server == "https://two.example.com"


def test_another_context_may_be_named(tmp_path: pathlib.Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("x", "y")]
    path = write(tmp_path, contexts=contexts, **{"current-context": "nowhere"})
    assert access.of_kubeconfig(str(path), "y").identity() == {"authorization": "Bearer abc"}
    with pytest.raises(errors.SettingsError, match="Expected object with name nowhere in"):
        access.of_kubeconfig(str(path))


@pytest.mark.parametrize(
    "cluster,user,reason",
    [
        ({"server": "https://192.0.2.1", "certificate-authority": "missing.crt"}, None, "File does not exist: .*/missing.crt"),
        ({**PLAIN_CLUSTER, "server": 7}, None, "rstrip"),
        ({**PLAIN_CLUSTER, "certificate-authority": 7}, None, "certificate-authority|int"),
        ([], None, "list"),
        (None, {"tokenFile": "/no/such/token"}, "/no/such/token"),
        (None, {"client-certificate": "missing.crt"}, "File does not exist: .*/missing.crt"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_an_error_with_its_path(tmp_path: pathlib.Path, cluster: Any, user: Any, reason: str) -> None:
    path = write(tmp_path, cluster, user)
    with pytest.raises(errors.SettingsError, match=f"^kubeconfig: cannot use kubeconfig {path}: .*({reason})"):
        access.of_kubeconfig(str(path))


def test_a_proxy_of_the_environment_is_used_except_for_this_machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://192.0.2.2:3128")
    assert access.of_kubeconfig(str(write(tmp_path))).is_proxied
    assert not access.of_kubeconfig(str(write(tmp_path, {**PLAIN_CLUSTER, "server": "https://127.0.0.1:1"}))).is_proxied
    monkeypatch.setenv("no_proxy", "192.0.2.1")
    assert not access.of_kubeconfig(str(write(tmp_path))).is_proxied


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
    result = access.of_kubeconfig(str(write(tmp_path, user=user)))
    assert result.identity() == {"authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    later = time.monotonic() + access.TOKEN_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert result.identity() == {"authorization": "Bearer second"}


@pytest.mark.parametrize("content", [None, "\n"], ids=["missing", "empty"])
def test_the_token_of_a_kubeconfig_is_used_if_its_token_file_has_none(tmp_path: pathlib.Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    result = access.of_kubeconfig(str(write(tmp_path, user={"token": "abc", "tokenFile": "token"})))
    assert result.identity() == {"authorization": "Bearer abc"}


def test_a_pipe_in_place_of_a_token_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(OSError, match="is a pipe"):
        access.TokenFile(tmp_path / "token")


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
    "content", [7, [], {"contexts": 7}, {"contexts": [7], "current-context": ["x"]}, {"contexts": [{"name": "x"}]}, {"users": [7]}]
)
def test_a_malformed_kubeconfig_is_an_error_with_its_path(tmp_path: pathlib.Path, content: object) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    for context in ("", "x"):
        with pytest.raises(errors.SettingsError, match=f"cannot use kubeconfig {tmp_path / 'config'}: "):
            access.of_kubeconfig(str(tmp_path / "config"), context)


def test_a_driver_in_a_pod_does_not_load_the_official_client(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_text(PEM)
    code = f"""import pathlib, sys; from drakit.kube import access, client
client.Client(access.in_cluster(pathlib.Path({str(tmp_path)!r}))); sys.exit('kubernetes' in sys.modules)"""
    environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
