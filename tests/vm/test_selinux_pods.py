"""A NIC driver and pods in containers of containerd where SELinux enforces a policy, each with the label that it has in a cluster."""

import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from drakit.core import advanced
from drakit_nic import checks
from fakes import netns
from vm import containerd, labelled, selinux, virtual_functions

PLUGINS = pathlib.Path("/var/lib/kubelet/plugins")
DRIVER_LABEL = "system_u:system_r:spc_t:s0"
RIGHTS = tuple(f"CAP_{name}" for name in ("NET_ADMIN", "NET_RAW", "SYS_ADMIN", "BPF", "PERFMON"))
"""Type and capabilities of the NIC driver's container in drakit's manifests."""
FOLDERS = ("/opt", "/root/drakit", str(PLUGINS), str(labelled.CDI))
RUNTIMES = ("dockerd_t", "crio_t")
"""The types of containerd and CRI-O in Debian's policy."""
CONCERNED = frozenset({"spc_t", "container_t", "container_file_t", "dockerd_t", "container_engine_t"})
SHARE, PARTNER = "10.99.0.2", "10.99.0.9"
REFUSED = 111
ASK = f"""
import json, socket
stream = socket.socket()
stream.settimeout(60)
print(json.dumps([[name for _, name in socket.if_nameindex()], stream.connect_ex(({PARTNER!r}, 9))]))
"""
"""Print the interfaces of a pod, and how a connection to the partner ends: refused, after a frame each way."""


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """The folder of the driver, with the label that the policy gives to the kubelet's, beside an empty CDI folder that an init script made."""
    PLUGINS.mkdir(parents=True, exist_ok=True)
    containerd.command("restorecon", "-R", "/var/lib/kubelet")
    labelled.CDI.mkdir()
    assert selinux.type_of(selinux.file_label(labelled.CDI)) == "initrc_runtime_t"
    with tempfile.TemporaryDirectory(prefix="dk", dir=PLUGINS) as made:
        yield pathlib.Path(made)
    shutil.rmtree(labelled.CDI)


@contextlib.contextmanager
def noted(folder: pathlib.Path, denials: selinux.Denials) -> Iterator[None]:
    """A failure shows the driver's log and what was denied."""
    try:
        yield
    except Exception as error:
        error.add_note((folder / "log").read_text() if (folder / "log").exists() else "the driver has no log")
        error.add_note("\n".join(str(denial) for denial in sorted(denials.of(CONCERNED))))
        raise


def test_a_driver_labelled_as_its_pod_gives_a_confined_pod_a_function_and_a_share(folder: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(virtual_functions.partner(PARTNER))
        parent = stack.enter_context(virtual_functions.parent(1))
        runtime = stack.enter_context(containerd.labelled())
        pod = stack.enter_context(contextlib.ExitStack())
        space = pod.enter_context(netns.namespace())
        containerd.command("chcon", "-t", "container_runtime_t", str(labelled.CDI))
        denials = stack.enter_context(selinux.enforced())
        stack.enter_context(noted(folder, denials))
        words = ["python", "-m", "vm.labelled", str(folder), parent.name, SHARE]
        with runtime.on_the_host_s_network(words, folders=FOLDERS, label=DRIVER_LABEL, rights=RIGHTS) as served:
            assert selinux.process_label(runtime.process(served)) == DRIVER_LABEL
            virtual_functions.until(lambda: bool(runtime.process(served)) and (folder / "edits").exists(), "the driver does not serve")
            edits = json.loads((folder / "edits").read_text())
            with runtime.running(space, sandbox="5a4d", edits=edits) as container:
                assert selinux.process_label(runtime.process(container)) == containerd.POD_LABEL
                interfaces, error = json.loads(runtime.execute(container, "python3", "-c", ASK))
                assert {"fast0", "shared0"} <= set(interfaces)
                assert error == REFUSED
            pod.close()  # A runtime ends a pod's network namespace before the kubelet unprepares its claims.
            containerd.command("ctr", "task", "kill", "--signal", "SIGTERM", served)
            virtual_functions.until(lambda: (folder / "done").exists() or not runtime.process(served), "the driver does not end")
        assert list(labelled.CDI.glob("*.json")) == []
        assert denials.of(CONCERNED) == set()
        _, label = checks.of_folder(folder / "nic.drakit.dev/hook")
        assert (label.verdict, "is enforcing" in label.message) == (advanced.Verdict.OK, True)


def test_a_driver_does_not_start_where_an_init_script_made_the_folder_of_cdi(folder: pathlib.Path) -> None:
    with containerd.labelled() as runtime, selinux.enforced(), contextlib.ExitStack() as stack:
        started = runtime.on_the_host_s_network([str(folder)], folders=FOLDERS, label=DRIVER_LABEL, rights=RIGHTS)
        with pytest.raises(AssertionError, match="stat /run/cdi: permission denied"):
            stack.enter_context(started)


def test_a_denial_is_logged_where_the_policy_does_not_say_to_hide_it() -> None:
    with selinux.enforced() as denials:
        ran = subprocess.run(["runcon", containerd.POD_LABEL, "true"], check=False, capture_output=True)
        assert ran.returncode != 0
        (denial,) = denials.of(frozenset({"container_t"}))
        assert (denial.permissions, denial.target, denial.kind) == ("transition", "container_t", "process")


@pytest.mark.parametrize(
    "maker,made,readers",
    [
        ("kubelet_t", "kubernetes_runtime_t", RUNTIMES),
        ("spc_t", "container_runtime_t", RUNTIMES),
        ("dockerd_t", "container_runtime_t", RUNTIMES),
        ("initrc_t", "initrc_runtime_t", ()),
        ("unconfined_t", "var_run_t", ()),
    ],
)
def test_the_maker_of_the_folder_of_cdi_decides_whether_a_runtime_reads_it(maker: str, made: str, readers: tuple[str, ...]) -> None:
    assert selinux.created(maker, "var_run_t", "dir") == made
    assert tuple(runtime for runtime in RUNTIMES if selinux.may(runtime, "read", made, "file")) == readers
    assert selinux.may("spc_t", "create", made, "file")


def test_a_runtime_runs_the_hook_with_the_type_of_the_driver_which_it_may_call() -> None:
    for folder in ("container_file_t", "container_var_lib_t"):
        assert {selinux.created(runtime, folder, "process") for runtime in RUNTIMES} == {"spc_t"}
        assert all(selinux.may(runtime, "execute", folder, "file") for runtime in RUNTIMES)
    assert selinux.may("spc_t", "connectto", "spc_t", "unix_stream_socket")
