"""The driver's files are found in the folders of each Linux distribution, and links lead where they lead on the host."""

import pathlib
import platform

import pytest

from drakit.core import edits, errors
from drakit_gpu import cdi, driver_root, identity
from drakit_gpu.nvml import library
from drakit_gpu.sharing.mps import supervisor

VERSION = "570.133.20"
MULTIARCH = f"/usr/lib/{platform.machine()}-linux-gnu"
NAMES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
SYSTEMS = {
    "Ubuntu": ("usr/lib/x86_64-linux-gnu", "usr/bin", "", "/usr/lib/x86_64-linux-gnu"),
    "RHEL, openSUSE": ("usr/lib64", "usr/bin", "", "/usr/lib64"),
    "Debian": ("usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/nvidia/current", "", MULTIARCH),
    "Talos": ("usr/local/glibc/usr/lib", "usr/local/bin", "", MULTIARCH),
    "Talos, the driver's folder": ("usr/lib", "usr/bin", "", MULTIARCH),
    "NixOS": ("run/opengl-driver/lib", "run/current-system/sw/bin", "", MULTIARCH),
    "Bottlerocket": ("usr/lib/nvidia/tesla", "usr/libexec/nvidia/tesla/bin", "", MULTIARCH),
    "Bottlerocket, /usr": ("usr/lib/nvidia/tesla", "usr/libexec/nvidia/tesla/bin", "usr", MULTIARCH),
    "Bottlerocket, its root": ("x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla", "usr/bin", "", MULTIARCH),
    "Container-Optimized OS": ("home/kubernetes/bin/nvidia/lib64", "home/kubernetes/bin/nvidia/bin", "", MULTIARCH),
    "Container-Optimized OS, the driver's folder": ("drivers/lib64", "drivers/bin", "drivers", "/lib64"),
    "Flatcar": ("opt/nvidia/current/usr/lib64", "opt/nvidia/current/bin", "", MULTIARCH),
    "Arch": ("usr/lib", "usr/bin", "", MULTIARCH),
}


def install(folder: pathlib.Path, names: tuple[str, ...] = NAMES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.so.{VERSION}").write_bytes(b"\x7fELF")
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")


def install_program(folder: pathlib.Path, name: str = "nvidia-smi") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch(mode=0o755)


def link(path: pathlib.Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def mounted(root: driver_root.DriverRoot) -> dict[str, str]:
    container: edits.Edits = cdi.DriverFiles(root).of(VERSION)
    return {mount.container_path: mount.host_path for mount in container.mounts}


@pytest.mark.parametrize("system", SYSTEMS)
def test_libraries_and_programs_of_every_system_are_found(tmp_path: pathlib.Path, system: str) -> None:
    libraries, programs, below, inside = SYSTEMS[system]
    install(tmp_path / libraries)
    install_program(tmp_path / programs)
    root = driver_root.DriverRoot(path=tmp_path / below, on_host=pathlib.Path("/h") / below)
    assert root.library(library.NAME) == tmp_path / libraries / f"libnvidia-ml.so.{VERSION}"
    mounts = mounted(root)
    for name in NAMES:
        assert mounts[f"{inside}/{name}.so.{VERSION}"] == mounts[f"{inside}/{name}.so.1"] == f"/h/{libraries}/{name}.so.{VERSION}"
    assert mounts["/usr/bin/nvidia-smi"] == f"/h/{programs}/nvidia-smi"


def test_absolute_links_of_debian_begin_at_the_driver_root(tmp_path: pathlib.Path) -> None:
    folder, alternatives = tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "etc/alternatives"
    install(folder / "nvidia/current")
    for name in ("libcuda", "libnvidia-ml"):
        link(folder / f"{name}.so.1", f"/etc/alternatives/nvidia--{name}.so.1")
        link(alternatives / f"nvidia--{name}.so.1", f"/usr/lib/x86_64-linux-gnu/nvidia/current/{name}.so.1")
    install_program(tmp_path / "usr/lib/nvidia/current")
    link(tmp_path / "usr/bin/nvidia-smi", "/etc/alternatives/nvidia--nvidia-smi")
    link(alternatives / "nvidia--nvidia-smi", "../../usr/lib/nvidia/current/nvidia-smi")
    root = driver_root.DriverRoot(path=tmp_path)
    assert root.library(library.NAME) == folder / f"nvidia/current/libnvidia-ml.so.{VERSION}"
    assert root.program("nvidia-smi") == tmp_path / "usr/lib/nvidia/current/nvidia-smi"
    mounts = mounted(root)
    assert mounts[f"{MULTIARCH}/libcuda.so.1"] == str(folder / f"nvidia/current/libcuda.so.{VERSION}")
    assert len(mounts) == len(set(mounts)) == 2 * len(NAMES) + 1
    assert all(pathlib.Path(path).is_file() and not pathlib.Path(path).is_symlink() for path in mounts.values())


def test_libraries_that_are_links_into_the_nix_store_are_mounted_from_there(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "nix/store/abc-nvidia-x11/lib"
    install(store)
    for name in NAMES:
        for suffix in (VERSION, "1"):
            link(tmp_path / f"nix/store/def-graphics/lib/{name}.so.{suffix}", f"/nix/store/abc-nvidia-x11/lib/{name}.so.{suffix}")
    link(tmp_path / "run/opengl-driver", "/nix/store/def-graphics")
    mounts = mounted(driver_root.DriverRoot(path=tmp_path, on_host=pathlib.Path("/")))
    assert mounts[f"{MULTIARCH}/libcuda.so.{VERSION}"] == f"/nix/store/abc-nvidia-x11/lib/libcuda.so.{VERSION}"
    assert mounts[f"{MULTIARCH}/libcuda.so.1"] == f"/nix/store/abc-nvidia-x11/lib/libcuda.so.{VERSION}"


def test_hooks_name_the_folders_and_links_of_the_container(tmp_path: pathlib.Path) -> None:
    install(tmp_path / "home/kubernetes/bin/nvidia/lib64")
    install_program(tmp_path / "usr/bin", cdi.HOOK)
    links, cache = cdi.DriverFiles(driver_root.DriverRoot(path=tmp_path)).of(VERSION).hooks
    assert f"libcuda.so.{VERSION}::{MULTIARCH}/libcuda.so.1" in links.args
    assert cache.args == (cdi.HOOK, "update-ldcache", "--folder", MULTIARCH)


def test_no_link_leads_out_of_the_driver_root_or_round_in_a_circle(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_text("the host's")
    inside = tmp_path / "root"
    (inside / "usr/lib64").mkdir(parents=True)
    root = driver_root.DriverRoot(path=inside)
    for number, target in enumerate(["../../../secret", "/../secret", str(tmp_path / "secret"), "../../../../../../../../secret"]):
        link(inside / f"usr/lib64/lib{number}.so", target)
        resolved = root.resolve(inside / f"usr/lib64/lib{number}.so")
        assert resolved is None or resolved == inside / "secret"
        assert root.library(f"lib{number}.so") is None
    link(inside / "a", "b")
    link(inside / "b", "/a")
    assert root.resolve(inside / "a") is None
    long = "libchain.so.0"
    (inside / "usr/lib64" / long).touch()
    for number in range(1, 60):
        link(inside / f"usr/lib64/libchain.so.{number}", f"libchain.so.{number - 1}")
    assert root.resolve(inside / "usr/lib64/libchain.so.30") == inside / "usr/lib64" / long
    assert root.resolve(inside / "usr/lib64/libchain.so.59") is None


def test_a_file_in_the_way_of_a_folder_and_a_bad_name_are_not_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/lib64").touch()
    assert driver_root.DriverRoot(path=tmp_path).library(library.NAME) is None
    assert driver_root.DriverRoot(path=tmp_path).resolve(tmp_path / ("n" * 300)) is None


def test_an_error_names_the_folders_that_were_searched(tmp_path: pathlib.Path) -> None:
    (tmp_path / "usr/lib64").mkdir(parents=True)
    root, searched = driver_root.DriverRoot(path=tmp_path, folders=("opt/own",)), f"searched below {tmp_path}: opt/own, usr/lib64"
    with pytest.raises(errors.RetryError, match=rf"libcuda\.so\.{VERSION}.*gpu\.library_folders; {searched}$"):
        cdi.DriverFiles(root).of(VERSION)
    with pytest.raises(errors.HardwareError, match=rf"LIBRARY_NOT_FOUND .*gpu\.library_folders or gpu\.library; {searched}"):
        library.load(None, root)
    assert driver_root.DriverRoot(path=tmp_path / "usr/lib64").searched().endswith("/usr/lib64: none of the usual folders exists")


def test_folders_of_the_settings_are_searched_first(tmp_path: pathlib.Path) -> None:
    install(tmp_path / "usr/lib64", ("libcuda", "libnvidia-ml"))
    install(tmp_path / "opt/own", ("libcuda", "libnvidia-ml"))
    root = driver_root.DriverRoot(path=tmp_path, folders=("/opt/own",))
    assert root.library(library.NAME) == tmp_path / f"opt/own/libnvidia-ml.so.{VERSION}"
    assert mounted(root)[f"{MULTIARCH}/libcuda.so.1"] == str(tmp_path / f"opt/own/libcuda.so.{VERSION}")


def test_a_driver_before_its_first_ldconfig_is_found_and_has_its_sonames(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    install(folder, ("libcuda", "libnvidia-ml"))
    for name in ("libcuda", "libnvidia-ml"):
        (folder / f"{name}.so.1").unlink()
    root = driver_root.DriverRoot(path=tmp_path)
    assert root.library(library.NAME) == folder / f"libnvidia-ml.so.{VERSION}"
    assert mounted(root)["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] == str(folder / f"libcuda.so.{VERSION}")
    (folder / "libnvidia-ml.so.550.54.14").touch()
    assert root.library(library.NAME) is None, "which of two versions is loaded is not guessed"


def test_a_driver_that_appears_in_another_folder_is_noticed(tmp_path: pathlib.Path) -> None:
    files = cdi.DriverFiles(driver_root.DriverRoot(path=tmp_path))
    install(tmp_path / "usr/lib64", ("libcuda", "libnvidia-ml"))
    first = files.of(VERSION)
    assert files.of(VERSION) is first
    install(tmp_path / "usr/local/glibc/usr/lib", ("libnvidia-nvvm",))
    assert any("libnvidia-nvvm" in mount.container_path for mount in files.of(VERSION).mounts)


def test_links_between_folders_are_one_folder(tmp_path: pathlib.Path) -> None:
    install(tmp_path / "usr/lib")
    link(tmp_path / "usr/lib64", "lib")
    link(tmp_path / "lib64", "usr/lib")
    assert driver_root.DriverRoot(path=tmp_path).library_folders() == {tmp_path / "usr/lib": "/usr/lib64"}


def test_an_mps_pod_searches_the_folders_of_the_settings(tmp_path: pathlib.Path) -> None:
    spec = supervisor.DaemonSpec(grant="g", device="d", limits=identity.Mps(), root=tmp_path, own_shm=False, stop_seconds=1.0)
    for folders in ((), ("opt/own",)):
        written = supervisor.DaemonSpec(**{**vars(spec), "folders": folders})
        written.write(tmp_path)
        assert supervisor.DaemonSpec.read(tmp_path) == written
