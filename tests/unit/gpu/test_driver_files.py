"""A container gets the driver's own files, all of them or none: found below the driver root, or told by NVIDIA's toolkit."""

import json
import pathlib
import re
import sys

import jsonschema
import pytest
import referencing
import referencing.jsonschema

from drakit.cdi import spec
from drakit.core import edits, errors, names
from drakit_gpu import cdi, driver_root, toolkit
from drakit_gpu.mock import mock_driver_root
from drakit_gpu.sharing.mps import daemon_folder

SCHEMA = pathlib.Path(__file__).parents[2] / "golden" / "cdi-schema"
VERSION = "580.95.05"
UUID = "67c1cba1-aaab-58cb-bb24-8e2024acd678"
CTK = """#!{python}
import pathlib, sys
pathlib.Path({log!r}).open("a").write(" ".join(sys.argv[1:]) + "\\n")
print({text!r})
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> driver_root.DriverRoot:
    made = mock_driver_root.create_driver_root(tmp_path, VERSION)
    return driver_root.DriverRoot(path=made.path, on_host=pathlib.Path("/run/nvidia/driver"))


def install(root: driver_root.DriverRoot, name: str, text: str = "") -> pathlib.Path:
    program = root.path / "usr/bin" / name
    program.write_text(text)
    program.chmod(0o755)
    return program


def install_toolkit(root: driver_root.DriverRoot, printed: object) -> pathlib.Path:
    """nvidia-ctk that prints this; returns the file in which it notes how it was called."""
    log = root.path / "called"
    text = printed if isinstance(printed, str) else json.dumps(printed)
    install(root, "nvidia-ctk", CTK.format(python=sys.executable, log=str(log), text=text))
    return log


def mounted(container: edits.Edits) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in container.mounts}


def test_every_library_of_the_version_is_mounted_from_the_host_with_its_links(root: driver_root.DriverRoot) -> None:
    mounts = mounted(cdi.DriverFiles(root).of(VERSION))
    for name in mock_driver_root.LIBRARIES:
        file = f"/usr/lib64/{name}.so.{VERSION}"
        assert mounts[file] == mounts[f"/usr/lib64/{name}.so.1"] == f"/run/nvidia/driver{file}"
    assert mounts["/usr/lib64/libcuda.so"].endswith(f"libcuda.so.{VERSION}")
    assert mounts["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert mounts[f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"]


def test_with_nvidias_hook_links_and_linker_cache_are_made_in_the_container(root: driver_root.DriverRoot) -> None:
    install(root, "nvidia-cdi-hook")
    container = cdi.DriverFiles(root).of(VERSION)
    assert "/usr/lib64/libcuda.so.1" not in mounted(container)
    links, cache = container.hooks
    assert links.path == cache.path == "/run/nvidia/driver/usr/bin/nvidia-cdi-hook"
    assert links.args[:2] == ("nvidia-cdi-hook", "create-symlinks")
    assert f"libcuda.so.{VERSION}::/usr/lib64/libcuda.so.1" in links.args
    assert "libcuda.so.1::/usr/lib64/libcuda.so" in links.args
    assert cache.args == ("nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64")


def test_files_of_another_version_are_left_out(root: driver_root.DriverRoot) -> None:
    (root.path / "usr/lib64/libcuda.so.550.54.14").touch()
    assert not any("550" in path for path in mounted(cdi.DriverFiles(root).of(VERSION)))


@pytest.mark.parametrize("name", ["libcuda", "libnvidia-ml"])
def test_a_half_installed_driver_is_an_uncached_error_that_names_what_is_missing(root: driver_root.DriverRoot, name: str) -> None:
    file = root.path / f"usr/lib64/{name}.so.{VERSION}"
    file.unlink()
    files = cdi.DriverFiles(root)
    with pytest.raises(errors.RetryError, match=re.escape(f"incomplete: {name}.so.{VERSION} not found below {root.path}")):
        files.of(VERSION)
    file.touch()
    assert f"/usr/lib64/{name}.so.{VERSION}" in mounted(files.of(VERSION))


def test_found_files_are_cached_until_a_folder_changes(root: driver_root.DriverRoot) -> None:
    files = cdi.DriverFiles(root)
    first = files.of(VERSION)
    assert files.of(VERSION) is first
    (root.path / f"usr/lib64/libnvcuvid.so.{VERSION}").touch()
    assert f"/usr/lib64/libnvcuvid.so.{VERSION}" in mounted(files.of(VERSION))
    with pytest.raises(errors.RetryError, match=r"590\.1"):
        files.of("590.1")


def toolkit_spec(root: driver_root.DriverRoot, **common: object) -> dict[str, object]:
    mounts = [
        {"hostPath": f"{root.path}/usr/lib64/{name}.so.{VERSION}", "containerPath": f"/usr/lib64/{name}.so.{VERSION}", "options": ["ro"]}
        for name in ("libcuda", "libnvidia-ml")
    ]
    hooks = [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "update-ldcache"]}]
    env = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"]
    edited = {"env": env, "deviceNodes": [{"path": "/dev/nvidiactl"}], "mounts": mounts, "hooks": hooks}
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [], "containerEdits": {**edited, **common}}


def test_the_toolkit_runs_once_and_its_paths_become_host_paths(root: driver_root.DriverRoot) -> None:
    install(root, "nvidia-cdi-hook")
    log = install_toolkit(root, toolkit_spec(root))
    files = cdi.DriverFiles(root)
    container = files.of(VERSION)
    assert files.of(VERSION) is container
    assert log.read_text().splitlines() == [f"cdi generate --format=json --mode=nvml --driver-root={root.path}"]
    assert container.env == {"NVIDIA_CTK_LIBCUDA_DIR": "/usr/lib64"}
    assert not container.device_nodes, "those are drakit's own"
    assert set(mounted(container).values()) == {f"/run/nvidia/driver/usr/lib64/{name}.so.{VERSION}" for name in ("libcuda", "libnvidia-ml")}
    assert container.hooks[0].path == "/run/nvidia/driver/usr/bin/nvidia-cdi-hook"


def test_the_hosts_own_mps_daemon_does_not_take_the_place_of_a_claims(root: driver_root.DriverRoot) -> None:
    result = toolkit_spec(root)
    common = result["containerEdits"]
    assert isinstance(common, dict)
    sockets = [
        {"hostPath": path, "containerPath": path, "options": ["ro"]} for path in ("/run/nvidia-persistenced/socket", "/tmp/nvidia-mps")
    ]
    common["mounts"] += sockets
    install(root, "nvidia-cdi-hook")
    install_toolkit(root, result)
    mounts = mounted(cdi.DriverFiles(root).of(VERSION))
    assert mounts["/run/nvidia-persistenced/socket"] == "/run/nvidia-persistenced/socket"
    assert daemon_folder.PIPE_IN_CONTAINER not in mounts


def test_the_toolkit_can_be_disabled(root: driver_root.DriverRoot) -> None:
    log = install_toolkit(root, {})
    assert cdi.DriverFiles(root, use_toolkit=False).of(VERSION).mounts
    assert not log.exists()


@pytest.mark.parametrize(
    "common,message",
    [
        ({"mounts": []}, "incomplete"),
        ({"mounts": [{"hostPath": "usr/lib", "containerPath": "/usr/lib"}]}, "must be absolute"),
        ({"mounts": [{"hostPath": "/a/../b", "containerPath": "/usr/lib"}]}, "must be absolute"),
        ({"mounts": [{"hostPath": "/a"}]}, r"mounts\[0\]\.containerPath: is required"),
        ({"hooks": [{"hookName": "createContainer", "path": "/bin/sh"}]}, "sh is not installed below"),
        ({"hooks": [{"hookName": "whenever", "path": "/usr/bin/nvidia-cdi-hook"}]}, "whenever"),
        ({"env": ["A"]}, "'A' is not NAME=value"),
        ({"env": "A=B"}, "env: must be a list"),
        ({"netDevices": []}, "netDevices: is not a known field"),
    ],
)
def test_edits_of_the_toolkit_are_checked(root: driver_root.DriverRoot, common: dict[str, object], message: str) -> None:
    install(root, "nvidia-cdi-hook")
    install_toolkit(root, toolkit_spec(root, **common))
    with pytest.raises((errors.HardwareError, errors.RetryError), match=message):
        cdi.DriverFiles(root).of(VERSION)


@pytest.mark.parametrize("printed", ["not JSON", "[]", '{"containerEdits": 1}'])
def test_toolkit_output_that_is_not_a_cdi_spec_is_an_error(root: driver_root.DriverRoot, printed: str) -> None:
    install_toolkit(root, printed)
    with pytest.raises(errors.HardwareError, match="nvidia-ctk: printed an invalid CDI spec"):
        cdi.DriverFiles(root).of(VERSION)


def test_a_failing_toolkit_is_an_error_with_its_output(root: driver_root.DriverRoot) -> None:
    install(root, "nvidia-ctk", f"#!{sys.executable}\nimport sys\nsys.exit('could not load NVML')\n")
    with pytest.raises(errors.HardwareError, match="nvidia-ctk: failed with 1: could not load NVML"):
        toolkit.from_toolkit(root, root.path / "usr/bin/nvidia-ctk")


def test_the_edits_make_a_valid_cdi_file(root: driver_root.DriverRoot) -> None:
    install(root, "nvidia-cdi-hook")
    name = edits.CdiName(driver="gpu.drakit.dev", claim_uid=names.ClaimUid(UUID), device="gpu-0")
    load = {name: json.loads((SCHEMA / name).read_text()) for name in ("schema.json", "defs.json")}
    draft = referencing.jsonschema.DRAFT7
    resources = [(name, referencing.Resource.from_contents(content, default_specification=draft)) for name, content in load.items()]
    validator = jsonschema.Draft7Validator(load["schema.json"], registry=referencing.Registry().with_resources(resources))
    for container in (
        cdi.DriverFiles(root).of(VERSION),
        cdi.DriverFiles(mock_driver_root.create_driver_root(root.path.parent / "b", VERSION)).of(VERSION),
    ):
        validator.validate(json.loads(spec.encode(name, container)))
