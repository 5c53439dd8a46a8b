"""The host's side of ``make vm``, without QEMU: a process with its name stands for it, and a thread for the machine's jobs."""

import contextlib
import itertools
import json
import pathlib
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vm import __main__ as command
from vm import machine as machines
from vm import reset_node, resets

Guest = Callable[[pathlib.Path], None]


@contextlib.contextmanager
def running(folder: pathlib.Path, guest: Guest, jobs: int = 1) -> Iterator[machines.Machine]:
    """A machine each of whose jobs runs in ``guest`` once it is there."""
    made = machines.Machine(kernel="6.12", cache=folder / "cache", folder=folder / "machine")
    made.share.mkdir(parents=True)
    process = subprocess.Popen(["bash", "-c", "exec -a qemu-system-x86_64 sleep 60"])
    (made.folder / "pid").write_text(f"{process.pid}\n")
    (made.folder / "console.log").write_text("Kernel panic - not syncing\n")
    reaper = threading.Thread(target=process.wait)
    reaper.start()

    def take() -> None:
        for _ in range(jobs):
            while not (made.share / "job").exists():
                time.sleep(0.01)
            guest(made.share)

    worker = threading.Thread(target=take)
    worker.start()
    deadline = time.monotonic() + 10
    while made.pid is None and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield made
    finally:
        made.stop(grace_s=0)
        worker.join()
        reaper.join()
    assert made.pid is None


def checkout(folder: pathlib.Path) -> pathlib.Path:
    made = folder / "checkout"
    made.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=made, check=True)
    for name, content in ((".gitignore", "ignored\n"), ("ignored", ""), ("new.py", "")):
        (made / name).write_text(content)
    return made


def test_a_job_runs_in_the_checkout_and_its_results_come_back(tmp_path: pathlib.Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    seen: list[str] = []

    def guest(share: pathlib.Path) -> None:
        with tarfile.open(share / "checkout.tar") as archive:
            seen.extend(archive.getnames())
        seen.append((share / "job").read_text())
        (share / "output").write_text("one passed\n")
        (share / "results.xml").write_text("<testsuites/>")
        (share / "status").write_text("3\n")

    with running(tmp_path, guest) as machine:
        assert machine.run("pytest\n", checkout=checkout(tmp_path), keep=False, timeout_s=30) == 3
        assert not (machine.share / "keep").exists()
    assert seen == [".gitignore", "new.py", "pytest\n"]
    assert capfdbinary.readouterr().out == b"one passed\n"
    assert (tmp_path / "machine/results.xml").read_text() == "<testsuites/>"


def test_a_later_job_gets_only_what_changed(tmp_path: pathlib.Path) -> None:
    made, seen = checkout(tmp_path), list[tuple[list[str], bytes]]()

    def guest(share: pathlib.Path) -> None:
        with tarfile.open(share / "checkout.tar") as archive:
            seen.append((archive.getnames(), (share / "removed").read_bytes()))
        (share / "job").unlink()
        (share / "status").write_text("0\n")

    with running(tmp_path, guest, jobs=3) as machine:
        for change in (lambda: None, lambda: (made / "new.py").write_text("1"), (made / "new.py").unlink):
            change()
            assert machine.run("pytest\n", checkout=made, keep=True, timeout_s=30) == 0
    assert seen == [([".gitignore", "new.py"], b""), (["new.py"], b""), ([], b"new.py\0")]


@contextlib.contextmanager
def control(folder: pathlib.Path) -> Iterator[list[str]]:
    """QEMU's control socket for one connection, and the commands that came."""
    commands = list[str]()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "qmp"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                print(json.dumps({"QMP": {}}), file=stream, flush=True)
                for line in stream:
                    commands.append(json.loads(line)["execute"])
                    print(json.dumps({"event": "RESET"}), json.dumps({"return": {}}), sep="\n", file=stream, flush=True)

        thread = threading.Thread(target=answer)
        thread.start()
        yield commands
        thread.join()


@pytest.mark.parametrize("status", [0, 1])
def test_a_reset_machine_gets_the_whole_checkout_again_and_is_checked(
    status: int, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = list[list[str]]()

    def guest(share: pathlib.Path) -> None:
        with tarfile.open(share / "checkout.tar") as archive:
            seen.append([*archive.getnames(), (share / "job").read_text().split("reset_node ")[1]])
        (share / "job").unlink()
        if len(seen) == 1:
            for name in reset_node.NODES:
                (share / "lives" / f"0-{name}").write_text("preparing:u:chip-0\nmake:chip-0\n")
            (share / "lives/serving-0").touch()
        else:
            (share / "status").write_text(f"{status}\n")

    with running(tmp_path, guest, jobs=2) as machine, control(machine.folder) as commands:
        assert resets.run(machine, 1, checkout=checkout(tmp_path), timeout_s=30, served_s=(0, 0)) == status
    assert commands == ["qmp_capabilities", "system_reset"]
    assert seen == [[".gitignore", "new.py", "/host/lives 0\n"], [".gitignore", "new.py", "/host/lives 1 last\n"]]
    assert capfd.readouterr().out == "vm: reset 1 of 1: 4 preparing until now\n" + (
        "vm: 1 resets, 4 drivers: a check failed\n" if status else "vm: 1 resets, 4 drivers: no claim lost, nothing left\n"
    )


def test_a_machine_that_ends_before_its_job_is_an_error_with_its_console(tmp_path: pathlib.Path) -> None:
    with running(tmp_path, lambda share: None) as machine:
        machine.stop(grace_s=0)
        with pytest.raises(machines.MachineError, match="Kernel panic - not syncing") as died:
            machine.run("pytest\n", checkout=checkout(tmp_path), keep=False, timeout_s=30)
    assert died.value.status == machines.DIED


def test_a_job_that_hangs_ends_with_the_time_limit(tmp_path: pathlib.Path) -> None:
    with running(tmp_path, lambda share: None) as machine:
        with pytest.raises(machines.MachineError, match="not finish in time") as hung:
            machine.run("pytest\n", checkout=checkout(tmp_path), keep=True, timeout_s=0.2)
        assert machine.pid is None
    assert hung.value.status == machines.TIMED_OUT


def test_the_machine_has_no_way_out() -> None:
    qemu = machines.qemu_command(pathlib.Path("/cache"), kernel="6.1")
    ends = [value for option, value in itertools.pairwise(qemu) if option in {"-netdev", "-net", "-nic"}]
    assert ends
    assert all(end.startswith("hubport,") for end in ends)


def test_only_a_machine_with_further_disks_survives_a_reset() -> None:
    for disks in ((), ("ext4", "xfs")):
        qemu = machines.qemu_command(pathlib.Path("/cache"), kernel="6.12", disks=disks)
        assert ("-no-reboot" in qemu, any("file=xfs.disk" in word for word in qemu)) == (not disks, bool(disks))


def test_only_a_machine_with_an_iommu_asks_for_one_and_has_its_disk_without_msi() -> None:
    for iommu in (False, True):
        qemu = " ".join(machines.qemu_command(pathlib.Path("/cache"), kernel="6.12", iommu=iommu))
        assert ("-device intel-iommu," in qemu, " intel_iommu=on " in qemu, "vectors=0" in qemu) == (iommu, iommu, iommu)


@pytest.mark.parametrize(
    "arguments,ran",
    [
        (["-k", "sriov"], "tests/vm -k sriov"),
        (["-x", "tests/contract/test_nic_port.py"], "-x tests/contract/test_nic_port.py"),
        (["-k", "a or b"], "tests/vm -k 'a or b'"),
    ],
)
def test_what_the_command_does_not_know_goes_to_pytest(arguments: list[str], ran: str) -> None:
    options, rest = command.parse(["--kernel", "6.1", *arguments])
    assert (options.kernel, options.keep) == ("6.1", False)
    assert command.script_of(options.shell, rest).endswith(f"--junitxml /host/results.xml {ran}\n")


def test_a_build_that_cannot_be_had_says_why_and_is_told_apart(tmp_path: pathlib.Path) -> None:
    build = command.CHECKOUT / "tests/vm/build"
    (tmp_path / "uname").write_text("#!/bin/sh\necho riscv64\n")
    (tmp_path / "id").write_text("#!/bin/sh\necho 0\n")
    for name in ("uname", "id"):
        (tmp_path / name).chmod(0o755)
    ran = subprocess.run(
        [str(build), str(tmp_path / "cache")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin:/usr/sbin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (77, "vm: the machine is x86_64, and QEMU is unpacked for the same; this computer is riscv64\n")
