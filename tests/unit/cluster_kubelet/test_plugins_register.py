"""Registration by sockets in the node's folder."""

import os
import pathlib
import socket
from collections.abc import Callable
from typing import cast

import pytest

from drakit_cluster.faults import Faults
from drakit_cluster.kubelet.plugins import plugins
from drakit_cluster.kubelet.plugins.health_streams import HealthStreams
from drakit_cluster.kubelet.plugins.plugins import SliceWiper
from drakit_cluster.objects.resources import CLAIM, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE
from unit.cluster_kubelet.quick_cluster import QUICK, QuickCluster


def test_a_plugin_is_notified_of_its_registration(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    assert [(status.plugin_registered, status.error) for status in plugin.statuses] == [(True, "")]
    assert cluster.cluster.node(objects.NODE).kubelet.plugins.is_registered(DRIVER)


@pytest.mark.parametrize(
    "change,error",
    [
        ({"type": "CSIPlugin"}, "type: no plugins of type 'CSIPlugin' are served here; want DRAPlugin"),
        ({"name": ""}, "name: must not be empty"),
        ({"service_socket": "dra.sock"}, "endpoint: must be an absolute path, not 'dra.sock'"),
        ({"versions": []}, "supported_versions: v1.DRAPlugin is not in none"),
        ({"versions": ["1.0.0"]}, "supported_versions: v1.DRAPlugin is not in 1.0.0"),
    ],
)
def test_a_plugin_that_cannot_be_used_receives_the_reason(cluster: QuickCluster, change: dict[str, object], error: str) -> None:
    plugin = cluster.new_plugin()
    for name, value in change.items():
        setattr(plugin, name, value)
    plugin.register()
    cluster.until(lambda: plugin.statuses, "an answer")
    assert (plugin.statuses[0].plugin_registered, plugin.statuses[0].error) == (False, error)
    assert not cluster.cluster.node(objects.NODE).kubelet.plugins.is_registered(DRIVER)


def test_a_plugin_that_recovers_is_registered_at_a_later_attempt(cluster: QuickCluster) -> None:
    plugin = cluster.new_plugin()
    plugin.versions = []
    plugin.start()
    cluster.until(lambda: len(plugin.statuses) >= 2, "a second attempt")
    plugin.versions = ["future.DRAPlugin", "v1.DRAPlugin"]
    cluster.until(lambda: plugin.statuses[-1].plugin_registered, "registration")


def test_a_plugin_that_fails_the_notification_is_not_registered(cluster: QuickCluster) -> None:
    plugin = cluster.new_plugin()
    plugin.notify_fails = 2
    plugin.start()
    cluster.until(lambda: len(plugin.statuses) == 3, "the third attempt")
    assert all(status.plugin_registered for status in plugin.statuses)
    assert cluster.cluster.node(objects.NODE).kubelet.plugins.is_registered(DRIVER)


def test_removing_the_registration_socket_unregisters_a_running_driver(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    plugins = cluster.cluster.node(objects.NODE).kubelet.plugins
    plugin.registration_socket.unlink()
    cluster.until(lambda: not plugins.is_registered(DRIVER), "the end of the registration")
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "an event")
    assert f"DRA driver {DRIVER} is not registered" in cluster.events("FailedPrepareDynamicResources")[0]
    plugin.register()
    cluster.phase("p", "Running")


def test_a_replaced_socket_registers_again_and_a_changed_mode_does_not(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    plugin.registration_socket.chmod(0o600)
    second = cluster.plugin(instance="-2")
    assert len(plugin.statuses) == 1
    plugin.registration_socket.unlink()
    plugin.register()
    cluster.until(lambda: len(plugin.statuses) == 2, "a second registration")
    assert len(second.statuses) == 1


def test_the_last_registered_of_two_instances_is_called(cluster: QuickCluster) -> None:
    first, second = cluster.plugin(), cluster.plugin(instance="-2")
    plugins = cluster.cluster.node(objects.NODE).kubelet.plugins

    def chosen() -> str:
        endpoint = plugins.choose(DRIVER)
        assert endpoint is not None
        return str(endpoint.path) if endpoint.connected else ""

    cluster.until(lambda: chosen() == str(second.service_socket), "the second instance")
    second.stop()
    cluster.until(lambda: chosen() == str(first.service_socket), "the first instance")
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    assert (first.count(PREPARE), second.count(PREPARE)) == (1, 0)


def test_the_same_endpoint_is_not_registered_twice(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    other = cluster.new_plugin(instance="-2")
    other.service_socket = plugin.service_socket
    other.register()
    cluster.until(lambda: other.statuses, "an answer")
    assert "is already registered" in other.statuses[0].error


def test_files_hidden_sockets_and_dead_sockets_are_ignored(cluster: QuickCluster) -> None:
    registry = cluster.cluster.node(objects.NODE).folder.registry
    (registry / "readme.txt").write_text("not a socket")
    (registry / ".hidden").mkdir()
    (registry / "sub").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(registry / "dead-reg.sock"))
    hidden = cluster.new_plugin(instance="-2")
    hidden.registration_socket = registry / ".hidden" / "reg.sock"
    hidden.register()
    plugin = cluster.new_plugin()
    plugin.registration_socket = registry / "sub" / "reg.sock"
    plugin.start()
    cluster.until(lambda: plugin.statuses, "registration")
    assert hidden.statuses == []


def test_a_pod_created_before_its_driver_starts_with_the_driver(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "an event")
    plugin = cluster.plugin()
    cluster.phase("p", "Running")
    assert plugin.count(PREPARE) == 1


def test_a_pod_without_a_driver_leaves_no_trace_and_can_be_deleted(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "an event")
    assert cluster.cluster.node(objects.NODE).kubelet.preparation.pods() == set()
    cluster.delete("p")
    cluster.gone(POD, "p")


def test_a_second_pod_of_a_prepared_claim_waits_until_the_driver_runs(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.lose(plugin)
    cluster.create(POD, objects.pod("q", claim="c"))
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "an event")
    assert cluster.events("FailedPrepareDynamicResources") == [
        f"Failed to prepare dynamic resources: DRA driver {DRIVER} is not registered"
    ]
    plugin.start()
    cluster.phase("q", "Running")
    assert plugin.count(PREPARE) == 1


class ClosedMeanwhile:
    """Listens to drivers' health; the kubelet stops just before it begins to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stop: Callable[[], None] = lambda: None

    def begin(self, *_: object) -> None:
        self.stop()
        self.calls.append("begin")

    def end(self, *_: object) -> None:
        self.calls.append("end")


def test_a_driver_that_registers_while_the_kubelet_stops_is_ignored(tmp_path: pathlib.Path) -> None:
    health = ClosedMeanwhile()
    known = plugins.Plugins(QUICK, Faults(), cast("SliceWiper", None), cast("HealthStreams", health))
    health.stop = known.close
    facts = plugins.PluginFacts(type="DRAPlugin", name="gpu.example.com", endpoint=tmp_path / "dra.sock", versions=("v1.DRAPlugin",))
    with pytest.raises(plugins.RegistrationError, match="stopping"):
        known.add(facts)
    assert health.calls == ["end", "begin", "end"]
