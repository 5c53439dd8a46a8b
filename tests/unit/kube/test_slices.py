"""What the slice store sends, seen at its transport."""

import collections.abc

import pytest

from drakit.core import records, slices
from drakit.kube import slice_codec, transport
from drakit.kube import slices as kube_slices
from fakes import real_clock
from fakes import slice_samples as samples


class Answering:
    """A transport that answers every request with one slice, and keeps what was sent."""

    def __init__(self, version: str) -> None:
        self.sent: list[tuple[str, transport.Object]] = []
        metadata: records.Record = {"name": "00000-x", "uid": "u", "resourceVersion": version}
        self.found: records.Record = {"metadata": metadata, "spec": slice_codec.encode(samples.spec_of(samples.plain_page("a")))}

    def request(
        self,
        method: str,
        path: str,
        *,
        query: collections.abc.Mapping[str, str] | None = None,
        body: transport.Object | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        self.sent.append((method, body or {}))
        return {"items": [self.found]} if method == "GET" else self.found

    def stream(self, path: str, *, query: collections.abc.Mapping[str, str], timeout: float) -> transport.Stream:
        raise NotImplementedError


@pytest.mark.parametrize("version", ["7", "007", "a/b:c", "99999999999999999999999999"])
def test_a_resource_version_is_sent_back_letter_by_letter(version: str) -> None:
    api = Answering(version)
    store = kube_slices.ApiSlices(api, driver=samples.DRIVER, node=samples.NODE, clock=real_clock.RealClock())
    (found,) = store.list()
    store.update(slices.Update(index=0, published=found, spec=found.spec))
    store.delete(found)
    (_, _), (put, replaced), (delete, options) = api.sent
    assert (put, delete) == ("PUT", "DELETE")
    assert replaced["metadata"] == {"name": "00000-x", "uid": "u", "resourceVersion": version}
    assert options["preconditions"] == {"uid": "u", "resourceVersion": version}
