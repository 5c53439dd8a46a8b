"""A connection that is made at the first request."""

import pytest

from drakit.core import errors
from drakit.kube import client, transport
from fakes import fake_transport


def test_an_unusable_configuration_fails_the_request_and_is_read_again() -> None:
    answers: list[transport.Transport] = []

    def connection() -> transport.Transport:
        if not answers:
            raise errors.SettingsError("no kubeconfig is given", key="kubeconfig")
        return answers[0]

    later = client.LazyClient(connection)
    with pytest.raises(errors.ApiError, match="no connection to the API server: kubeconfig: no kubeconfig is given"):
        later.request("GET", "/version")
    answers.append(fake_transport.FakeTransport(lambda _: {"gitVersion": "v1.36.2"}))
    assert later.request("GET", "/version") == {"gitVersion": "v1.36.2"}
