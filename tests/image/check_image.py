"""A built image: how much it adds to its base, what is in it, and that everything in it runs on a read-only root."""

import functools
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import tarfile
from collections.abc import Iterator, Mapping

import pytest

IMAGE, ENGINE = os.environ.get("DRAKIT_IMAGE", "drakit:latest"), os.environ.get("ENGINE", "podman").split()
RUN_FLAGS = os.environ.get("RUN_FLAGS", "").split()
HERE = pathlib.Path(__file__).parent
MOST_ADDED = 150_000_000
UNCHECKED_HASH = 1
LABELS = {"title", "description", "licenses", "version", "revision", "base.name"}


def engine(*words: str) -> bytes:
    ran = subprocess.run([*ENGINE, *words], capture_output=True, check=False, timeout=500)
    assert ran.returncode == 0, ran.stderr.decode()[-2000:]
    return ran.stdout


def in_image(*words: str, entrypoint: str = "drakit", flags: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """A command in a container like the DaemonSet's: a read-only root, no capabilities, and a writable /tmp."""
    pod = ["--read-only", "--network", "none", "--cap-drop", "ALL", "--tmpfs", "/tmp", *flags, *RUN_FLAGS]
    command = [*ENGINE, "run", "--rm", *pod, "--entrypoint", entrypoint, IMAGE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


@functools.cache
def inspected(name: str) -> Mapping[str, object]:
    (found,) = json.loads(engine("image", "inspect", name))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tarfile.TarFile]:
    """The one layer that lies on the base."""
    saved = tmp_path_factory.mktemp("image") / "image.tar"
    engine("save", "--output", str(saved), IMAGE)
    with tarfile.open(saved) as image:
        manifest = image.extractfile("manifest.json")
        assert manifest is not None
        (entry,) = json.load(manifest)
        last = image.extractfile(entry["Layers"][-1])
        assert last is not None
        with tarfile.open(fileobj=io.BytesIO(last.read())) as layer:
            names = {member.name.removeprefix("./") for member in layer.getmembers()}
            assert "usr/local/bin/drakit" in names, "the image adds more than the one layer with drakit"
            yield layer
    saved.unlink()


@pytest.fixture(scope="module")
def everything() -> Mapping[str, object]:
    """What inside.py prints in the image, with every module that Python loaded on its standard error."""
    ran = in_image("-v", "/inside.py", entrypoint="python", flags=("--volume", f"{HERE / 'inside.py'}:/inside.py:ro"))
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    return {**found, "log": ran.stderr}


def test_the_image_adds_less_than_150_mb_to_its_base(added: tarfile.TarFile) -> None:
    size = sum(member.size for member in added.getmembers() if member.isfile())
    assert size < MOST_ADDED


def test_the_image_adds_programs_and_packages_and_nothing_else(added: tarfile.TarFile) -> None:
    """No caches, no lists of a package manager, no compiler, no sources of the build."""
    files = [member.name.removeprefix("./") for member in added.getmembers() if not member.isdir()]
    assert [name for name in files if not re.match(r"usr/local/lib/python3[.]\d+/|usr/local/bin/(drakit(-probe)?|udhcpc)$", name)] == []
    assert [name for name in files if "/site-packages/pip/" in name or "/hatchling/" in name] == []


def test_nothing_is_installed_editable(added: tarfile.TarFile) -> None:
    files = [member.name for member in added.getmembers()]
    assert [name for name in files if name.endswith((".pth", "direct_url.json"))] == []
    assert sum(name.endswith("site-packages/drakit/cli/app.py") for name in files) == 1


def test_every_module_has_bytecode_that_is_never_checked_against_its_source(added: tarfile.TarFile) -> None:
    names = {member.name for member in added.getmembers()}
    sources = {name for name in names if name.endswith(".py")}
    assert len(sources) > 1000
    cached = {re.sub(r"([^/]+)[.]py$", r"__pycache__/\1", name) for name in sources}
    compiled = {re.sub(r"[.]cpython-\d+[.]pyc$", "", name) for name in names if name.endswith(".pyc")}
    assert sorted(cached - compiled) == []
    for member in added.getmembers():
        if member.name.endswith(".pyc"):
            file = added.extractfile(member)
            assert file is not None
            assert struct.unpack("<4sI", file.read(8))[1] == UNCHECKED_HASH, member.name


def test_the_image_says_what_it_is() -> None:
    config = inspected(IMAGE)["Config"]
    assert isinstance(config, dict)
    prefix = "org.opencontainers.image."
    labels = {key.removeprefix(prefix): value for key, value in config["Labels"].items() if key.startswith(prefix)}
    assert labels.keys() >= LABELS
    assert "" not in {labels[name] for name in LABELS}
    assert config["Entrypoint"] == ["drakit"]
    assert config["Cmd"] == ["run"]


def test_nothing_is_compiled_at_run_time_and_every_module_can_be_imported(everything: Mapping[str, object]) -> None:
    imported, without, log = everything["imported"], everything["without_cluster"], everything["log"]
    assert isinstance(imported, list)
    assert isinstance(without, list)
    assert isinstance(log, str)
    assert len(imported) > 200
    assert [name for name in without if not name.startswith("drakit_tools.demo.")] == []
    compiled = set(re.findall(r"code object from '?(/usr/[^']*[.]py)'?$", log, re.MULTILINE))
    # This one has the architecture in its name, so a machine of another architecture does not have it to compile.
    assert {name for name in compiled if "/_sysconfigdata_" not in name} == set()


def test_every_command_has_help(everything: Mapping[str, object]) -> None:
    helps = everything["helps"]
    assert isinstance(helps, dict)
    assert {"drakit", "drakit run", "drakit doctor", "drakit show"} <= helps.keys()
    assert [words for words, text in helps.items() if "Usage: " not in text] == []


def test_doctor_looks_at_a_mock_machine_on_a_read_only_root() -> None:
    ran = in_image("doctor", "--mock", "dgx-a100-40gb-2gpu", "--no-api", "--folder", "/tmp/drakit")
    assert "52 devices" in ran.stdout, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


def test_the_hook_client_and_the_probe_are_programs_of_the_images_architecture() -> None:
    packages = "from drakit_nic.attach import hook_program; print(hook_program.BUNDLED)"
    client = in_image("-c", packages, entrypoint="python").stdout.strip()
    assert in_image("--check", entrypoint=client).returncode == 0
    assert "usage: drakit-probe SOCKET PATH" in in_image(entrypoint="drakit-probe").stderr


def test_the_dhcp_client_runs() -> None:
    ran = in_image("--help", entrypoint="udhcpc")
    assert "Usage: udhcpc" in ran.stderr + ran.stdout
