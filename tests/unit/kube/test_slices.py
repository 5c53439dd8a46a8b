"""What the slice store sends, seen at its transport."""

import pytest

from drakit.core import records
from drakit.core.slices import resource_slice
from drakit.kube import slice_codec
from drakit.kube import slices as kube_slices
from fakes import fake_transport, real_clock
from fakes import slice_samples as samples


def server_with_a_slice(version: str) -> fake_transport.FakeTransport:
    """A server that answers every request with one slice."""
    metadata: records.Record = {"name": "00000-x", "uid": "u", "resourceVersion": version}
    found: records.Record = {"metadata": metadata, "spec": slice_codec.encode(samples.spec_of(samples.plain_page("a")))}
    return fake_transport.FakeTransport(lambda request: {"items": [found]} if request.method == "GET" else found)


@pytest.mark.parametrize("version", ["7", "007", "a/b:c", "99999999999999999999999999"])
def test_a_resource_version_is_sent_back_letter_by_letter(version: str) -> None:
    api = server_with_a_slice(version)
    store = kube_slices.ApiSlices(api, driver=samples.DRIVER, node=samples.NODE, clock=real_clock.RealClock())
    (found,) = store.list()
    store.update(resource_slice.Update(index=0, published=found, spec=found.spec))
    store.delete(found)
    _, put, delete = api.requests
    assert (put.method, delete.method) == ("PUT", "DELETE")
    assert put.body is not None
    assert delete.body is not None
    assert put.body["metadata"] == {"name": "00000-x", "uid": "u", "resourceVersion": version}
    assert delete.body["preconditions"] == {"uid": "u", "resourceVersion": version}
