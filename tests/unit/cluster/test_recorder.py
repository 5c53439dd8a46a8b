"""Events are written in the background, and nothing is written once the one who writes them has ended."""

import threading

from drakit_cluster.api import registry
from drakit_cluster.api.reviewing import TRUSTED, Review
from drakit_cluster.client import recorder
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import EVENT, POD, Resource
from fakes import waits
from unit.cluster import samples


class Slow(registry.Registry):
    """A registry whose writes of events wait until a test lets one through."""

    def __init__(self) -> None:
        super().__init__()
        self.through = threading.Semaphore(0)
        self.asked = threading.Event()

    def create(self, resource: Resource, obj: Object, *, namespace: str = "", manager: str = "", review: Review = TRUSTED) -> Object:
        if resource is EVENT:
            self.asked.set()
            self.through.acquire()
        return super().create(resource, obj, namespace=namespace, manager=manager, review=review)


def test_recorded_events_are_written_before_the_recorder_ends() -> None:
    api = registry.Registry()
    written = recorder.Recorder(api, "tester")
    written.start()
    for number in range(20):
        written.normal(POD, samples.pod() | {"metadata": {"name": "p", "namespace": "default", "uid": f"{number}"}}, "Reason", "text")
    written.stop()
    assert len(api.list(EVENT).items) == 20


def test_after_the_end_no_queued_event_is_written() -> None:
    api = Slow()
    writing = recorder.Recorder(api, "tester")
    writing.start()
    for number in range(5):
        writing.normal(POD, samples.pod(), "Reason", f"text {number}")
    assert api.asked.wait(waits.SECONDS)
    ending = threading.Thread(target=writing.stop, kwargs={"seconds": 0.0})
    ending.start()
    ending.join(0.2)
    api.through.release(5)
    ending.join(waits.SECONDS)
    assert not ending.is_alive()
    assert len(api.list(EVENT).items) == 1
