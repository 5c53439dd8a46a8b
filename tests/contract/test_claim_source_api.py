"""What only the real claim source can show: whom it trusts, who it is, and what it does when the server is not there."""

import collections.abc
import pathlib

import pytest

from drakit.core import errors
from drakit.kube import claims, client
from drakit_cluster.api import apiserver, registry, tls
from fakes import claim_samples as samples


@pytest.fixture
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        yield running


def connect(server: apiserver.ApiServer, folder: pathlib.Path, *, authority: bytes, bearer: str) -> claims.ApiClaims:
    ca_file = folder / "ca.crt"
    ca_file.write_bytes(authority)
    return claims.ApiClaims(client.connect_to(server.url, token=bearer, ca_file=ca_file))


def refusal(source: claims.ApiClaims) -> errors.ApiError:
    with pytest.raises(errors.ApiError) as raised:
        source.fetch(samples.REF)
    return raised.value


def test_a_valid_token_and_a_trusted_authority_are_accepted(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    source = connect(server, tmp_path, authority=server.ca_pem, bearer=server.issue_token("driver", ("system:masters",)))
    with pytest.raises(errors.ClaimError) as raised:
        source.fetch(samples.REF)
    assert raised.value.fault is errors.ClaimFault.NOT_FOUND


def test_a_wrong_token_is_refused_by_the_server(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    assert refusal(connect(server, tmp_path, authority=server.ca_pem, bearer="guess")).status == 401


def test_a_server_with_a_certificate_of_another_authority_is_refused(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    error = refusal(connect(server, tmp_path, authority=tls.Authority().pem, bearer=server.issue_token("driver")))
    assert error.status == 0
    assert "certificate verify failed" in str(error)


def test_an_authority_file_that_is_missing_is_an_error(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    source = connect(server, tmp_path, authority=server.ca_pem, bearer="any")
    (tmp_path / "ca.crt").unlink()
    assert refusal(source).status == 0


def test_an_unreachable_server_does_not_make_a_claim_count_as_deleted(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    source = connect(server, tmp_path, authority=server.ca_pem, bearer=server.issue_token("driver", ("system:masters",)))
    server.stop()
    assert refusal(source).status == 0
    server.start()
    with pytest.raises(errors.ClaimError):
        source.fetch(samples.REF)
