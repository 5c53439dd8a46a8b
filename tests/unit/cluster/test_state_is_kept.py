"""A cluster's objects outlive it in a file: whole, in order, and whatever ends the process or the disk."""

import errno
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from drakit_cluster.api import registry
from drakit_cluster.api.storage.state_log import StateError, StateLog
from drakit_cluster.api.storage.store import Store
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import ALL, CLAIM, CONFIGMAP, SLICE
from fakes import waits
from unit.cluster import samples


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state.jsonl"


def opened(file: pathlib.Path) -> registry.Registry:
    return registry.Registry(Store(log=StateLog(file)))


def snapshot(memory: registry.Registry) -> list[Object]:
    return [one for kind in ALL for one in memory.list(kind).items]


def config_map(name: str, size: int = 1) -> Object:
    return {"metadata": {"name": name}, "data": {"a": "x" * size}}


def test_a_new_cluster_has_the_objects_and_the_version_of_the_one_before(file: pathlib.Path) -> None:
    first = opened(file)
    first.create(CLAIM, samples.claim("a"))
    first.create(CLAIM, samples.claim("gone"))
    first.create(SLICE, samples.slice_())
    held = first.get(CLAIM, "a", "default")
    first.update(CLAIM, samples.allocated(held, samples.result()), subresource="status")
    first.delete(CLAIM, "gone", namespace="default")
    version = first.store.version
    first.store.close()
    second = opened(file)
    assert snapshot(second) == snapshot(first)
    assert second.store.version == version
    with pytest.raises(errors.AlreadyExistsError):
        second.create(CLAIM, samples.claim("a"))
    second.create(CLAIM, samples.claim("b"))
    assert second.store.version == version + 1
    assert oct(file.stat().st_mode & 0o777) == "0o600"


def test_a_watch_from_before_the_restart_gets_the_error_that_the_history_is_lost(file: pathlib.Path) -> None:
    first = opened(file)
    since = first.list(CLAIM).resource_version
    first.create(CLAIM, samples.claim("a"))
    first.delete(CLAIM, "a", namespace="default")
    first.store.close()
    second = opened(file)
    with pytest.raises(errors.GoneError):
        next(iter(second.watch(CLAIM, since=since, timeout=1)))
    assert list(second.watch(CLAIM, since=second.list(CLAIM).resource_version, timeout=0.05)) == []


@pytest.mark.parametrize("lost", [1, 30, 90])
def test_a_partial_last_line_is_ignored(file: pathlib.Path, lost: int) -> None:
    first = opened(file)
    first.create(CONFIGMAP, config_map("a"), namespace="default")
    before = snapshot(first)
    first.create(CONFIGMAP, config_map("b"), namespace="default")
    first.store.close()
    file.write_bytes(file.read_bytes()[:-lost])
    again = opened(file)
    assert snapshot(again) == before
    again.create(CONFIGMAP, config_map("c"), namespace="default")
    again.store.close()
    assert snapshot(opened(file)) == snapshot(again)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"hello\n", "line 1 cannot be read"),
        (b'{"a":1}\n', "line 1 cannot be read (the file is of another kind or version)"),
        (b"[" * 100_000 + b"\n", "line 1 cannot be read"),
    ],
)
def test_a_file_of_another_kind_is_named_and_kept(file: pathlib.Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(StateError, match="move the file away to start with an empty cluster") as refused:
        opened(file)
    assert f"{file}: {message}" in str(refused.value)
    assert file.read_bytes() == content


def test_a_path_that_is_not_a_regular_file_is_refused_at_once(file: pathlib.Path) -> None:
    os.mkfifo(file)
    with pytest.raises(StateError, match="is not a regular file"):
        opened(file)
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(StateError, match="cannot be read"):
        opened(file)


def test_a_line_in_the_middle_that_cannot_be_read_is_named(file: pathlib.Path) -> None:
    opened(file).store.close()
    lines = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([*lines[:3], b"{oops", *lines[3:]]))
    with pytest.raises(StateError, match="line 4 cannot be read"):
        opened(file)


def test_a_write_that_cannot_be_stored_is_refused_and_invisible(file: pathlib.Path) -> None:
    """The limit on the size of files stands for a full disk: the kernel writes what fits, then refuses."""
    script = f"""
import errno, pathlib, resource, signal
from drakit_cluster.api import registry
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.resources import CONFIGMAP
from drakit_cluster.api.storage.state_log import StateLog
from drakit_cluster.api.storage.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = pathlib.Path({str(file)!r})
memory = registry.Registry(Store(log=StateLog(file)))
resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, -1))
for change in (
    lambda: memory.create(CONFIGMAP, {{"metadata": {{"name": "big"}}, "data": {{"a": "x" * 5000}}}}, namespace="default"),
    lambda: memory.delete(CONFIGMAP, "small", namespace="default"),
):
    try:
        change()
    except errors.StorageError as error:
        print(error)
    except errors.NotFoundError:
        print("not found")
print([json_types.text(one, "metadata", "name") for one in memory.list(CONFIGMAP).items])
"""
    opened(file).store.close()
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=waits.SECONDS)
    assert ran.stdout.splitlines() == [f"{file}: the change cannot be stored: {os.strerror(errno.EFBIG)}", "not found", "[]"]
    assert file.read_bytes().endswith(b"\n")
    assert opened(file).list(CONFIGMAP).items == []


def test_a_killed_cluster_loses_no_answered_write(file: pathlib.Path) -> None:
    script = f"""
import pathlib
from drakit_cluster.api import registry
from drakit_cluster.objects.resources import CONFIGMAP
from drakit_cluster.api.storage.state_log import StateLog
from drakit_cluster.api.storage.store import Store
memory = registry.Registry(Store(log=StateLog(pathlib.Path({str(file)!r}))))
for number in range(100000):
    memory.create(CONFIGMAP, {{"metadata": {{"name": f"n{{number}}"}}}}, namespace="default")
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        seen += process.stdout.readlines()
    answered = max(int(line) for line in seen if line.endswith("\n"))
    names = {json_types.text(one, "metadata", "name") for one in opened(file).list(CONFIGMAP).items}
    assert {f"n{number}" for number in range(answered + 1)} <= names


def test_a_long_file_is_compacted_while_the_cluster_runs(file: pathlib.Path) -> None:
    first = registry.Registry(Store(log=StateLog(file, rewrite_bytes=20_000)))
    first.create(CONFIGMAP, config_map("a"), namespace="default")
    for number in range(60):
        first.update(CONFIGMAP, config_map("a", 1000 + number) | {"metadata": {"name": "a", "namespace": "default"}})
    assert file.stat().st_size < 60_000
    first.store.close()
    assert snapshot(opened(file)) == snapshot(first)


def test_a_kept_object_keeps_the_fields_of_a_gate_that_is_switched_off(file: pathlib.Path) -> None:
    first = opened(file)
    shared: Object = {"name": "nic", "allowMultipleAllocations": True}
    first.create(SLICE, samples.slice_(devices=[shared]))
    first.store.close()
    second = registry.Registry(Store(log=StateLog(file)), gates=FeatureGates.of({"DRAConsumableCapacity": False}))
    [stored] = second.list(SLICE).items
    assert json_types.at(stored, "spec", "devices", 0) == shared
    second.create(SLICE, samples.slice_("new", devices=[shared]))
    assert json_types.at(second.get(SLICE, "new"), "spec", "devices", 0) == {"name": "nic"}
