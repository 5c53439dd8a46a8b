"""Updates while pods with claims start all along: no prepare is refused, no slice is missing, and a version that does not start replaces nothing."""

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from drakit_cluster.objects import json_types
from e2e import driver as drivers
from e2e import objects
from e2e.api import Api
from e2e.driver import Driver
from e2e.workspace import Workspace

pytestmark = [pytest.mark.real, pytest.mark.gates("DRAPartitionableDevices", "DRAConsumableCapacity")]

_REFUSED = "FailedPrepareDynamicResources"
_STARTERS = 2
_UPDATES = 3
_BROKEN_SECONDS = 20
_START_SECONDS = 60
_NOWHERE = "drakit.invalid/no-such-image:1"


@dataclasses.dataclass(kw_only=True)
class Load:
    """Pods that start one after the other while ``running``, and what was seen meanwhile."""

    space: Workspace
    driver: Driver
    seconds: list[float] = dataclasses.field(default_factory=list)
    gaps: list[str] = dataclasses.field(default_factory=list)
    looks: int = 0
    troubles: list[str] = dataclasses.field(default_factory=list)
    uids: set[str] = dataclasses.field(default_factory=set)
    _over: threading.Event = dataclasses.field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start pods meanwhile, and look at the slices."""
        self.space.create(objects.template("both", objects.mig("gpu", "1g.5gb"), objects.share("net", "100M")))
        work: list[Callable[[], None]] = [self._look, *(functools.partial(self._start, number) for number in range(_STARTERS))]
        threads = [threading.Thread(target=one) for one in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def refusals(self) -> list[str]:
        """Return what the kubelet reported of refused prepares for these pods."""
        return [
            json_types.text(event, "message")
            for event in self.space.api.list("Event", self.space.namespace)
            if event.get("reason") == _REFUSED and json_types.text(event, "involvedObject", "uid") in self.uids
        ]

    def _start(self, number: int) -> None:
        count = 0
        while not self._over.is_set():
            name, began = f"load-{number}-{count}", time.monotonic()
            try:
                pod = self.space.create(objects.pod(name, templates=["both"]))
                self.uids.add(json_types.text(pod, "metadata", "uid"))
                self.space.running(name, seconds=_START_SECONDS)
                self.seconds.append(time.monotonic() - began)
                self.space.end(name)
            except Exception as error:  # noqa: BLE001 - whatever it was belongs into the result
                self.troubles.append(f"{name}: {error}")
            count += 1

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.looks += 1
            self.gaps += [name for name in drivers.DRIVERS if not self.driver.devices(name)]


def _changed(api: Api, driver: Driver, *words: str) -> None:
    for item in driver.daemonsets():
        api.kubectl("-n", drivers.NAMESPACE, *words[:2], f"daemonset/{json_types.text(item, 'metadata', 'name')}", *words[2:])


def test_three_updates_refuse_no_pod_and_leave_no_moment_without_devices(api: Api, space: Workspace, driver: Driver) -> None:
    load = Load(space=space, driver=driver)
    with load.running():
        time.sleep(5)
        for _ in range(_UPDATES):
            _changed(api, driver, "rollout", "restart")
            driver.settled()
    assert (load.troubles, load.gaps, load.refusals()) == ([], [], [])
    assert len(load.seconds) > _UPDATES
    assert load.looks > _UPDATES


@pytest.mark.parametrize(
    "broken",
    [("set", "image", f"driver={_NOWHERE}"), ("set", "env", "DRAKIT_NODE__CDI_DIR=relative")],
    ids=["image", "start"],
)
def test_a_version_that_does_not_start_replaces_nothing(api: Api, space: Workspace, driver: Driver, broken: tuple[str, ...]) -> None:
    serving = {json_types.text(pod, "metadata", "uid") for pod in driver.pods()}
    load = Load(space=space, driver=driver)
    with load.running():
        _changed(api, driver, *broken)
        try:
            time.sleep(_BROKEN_SECONDS)
            pods = {json_types.text(pod, "metadata", "uid"): _is_ready(pod) for pod in driver.pods()}
        finally:
            _changed(api, driver, "rollout", "undo")
            driver.settled()
    assert all(pods[uid] for uid in serving)
    assert len(pods) > len(serving), "the broken version was tried"
    assert not any(is_ready for uid, is_ready in pods.items() if uid not in serving)
    assert (load.troubles, load.gaps, load.refusals()) == ([], [], [])


def _is_ready(pod: json_types.Object) -> bool:
    statuses = json_types.objects(pod, "status", "containerStatuses")
    return bool(statuses) and all(one.get("ready") is True for one in statuses)
