"""Bad input gets one clear line that names the field, status 1, and leaves nothing behind; what is right still works afterwards."""

import pathlib
from collections.abc import Callable

import pytest

from fakes import command_line

CONFIG = {
    "source": "FromClaim",
    "opaque": {"driver": "gpu.drakit.dev", "parameters": {"apiVersion": "gpu.drakit.dev/v1", "kind": "MigConfig", "sharin": 1}},
}

CLAIMS: dict[str, tuple[Callable[[command_line.CommandLine], str], str]] = {
    "unknown device": (
        lambda shell: shell.claim_file(command_line.mig("gpu-9")),
        "status.allocation.devices.results[0].device: this node has no device 'gpu-9'",
    ),
    "another pool": (
        lambda shell: shell.claim_file(command_line.mig(pool="node-2")),
        "status.allocation.devices.results[0].pool: 'node-2' is not this node's pool 'node-1'",
    ),
    "another driver": (
        lambda shell: shell.claim_file(command_line.mig(driver="gpu.example.com")),
        "status.allocation.devices.results: no device of a driver of this node (the claim's drivers: gpu.example.com)",
    ),
    "not allocated": (lambda shell: shell.write("claim", {}), "status.allocation: the claim is not allocated"),
    "a UID that is none": (
        lambda shell: shell.claim_file(command_line.mig(), uid="../../etc"),
        "metadata.uid: '../../etc' is not a lower-case UUID",
    ),
    "unknown config field": (
        lambda shell: shell.claim_file(command_line.mig(), config=[CONFIG]),
        "parameters.sharin: is not a known field",
    ),
    "malformed quantity": (
        lambda shell: shell.claim_file(command_line.share("10Q")),
        "status.allocation.devices.results[0].consumedCapacity.bandwidth: '10Q' has an unknown suffix",
    ),
    "a share without an id": (lambda shell: shell.claim_file(command_line.share("10M", shareID=None)), "shareID"),
    "a misspelt field of a result": (
        lambda shell: shell.claim_file(command_line.mig(shareId="5cf8db2d-06c0-4d70-9a51-e59b25b2c16c")),
        "status.allocation.devices.results[0].shareId: is not a field of a ResourceClaim; did you mean shareID?",
    ),
    "a misspelt field of the allocation": (
        lambda shell: shell.write("claim", {"status": {"allocation": {"device": {}}}}),
        "status.allocation.device: is not a field of a ResourceClaim; did you mean devices?",
    ),
    "a misspelt status": (
        lambda shell: shell.write("claim", {"stats": {}}),
        "stats: is not a field of a ResourceClaim; did you mean status?",
    ),
    "an unknown capacity": (
        lambda shell: shell.claim_file(command_line.share("10G", consumedCapacity={"bandwith": "10G"})),
        "results[0].consumedCapacity[bandwith]: device pci-0000-0c-00-0 has no such capacity; it has bandwidth",
    ),
    "an amount between two steps": (
        lambda shell: shell.claim_file(command_line.share("10000001")),
        "results[0].consumedCapacity[bandwidth]: 10000001 is not allowed by the request policy; the next larger allowed amount is",
    ),
    "more than there is": (
        lambda shell: shell.claim_file(command_line.share("1000G")),
        "results[0].consumedCapacity[bandwidth]: 1T is not allowed by the request policy; the largest allowed amount is 100G",
    ),
    "a pod": (
        lambda shell: shell.write("claim", {"kind": "Pod", "apiVersion": "v1"}),
        "kind: is 'Pod'; only ResourceClaims that are allocated",
    ),
    "no file": (lambda shell: str(shell.folder / "nothing.yaml"), "nothing.yaml: cannot be read"),
}


@pytest.mark.parametrize("make, message", CLAIMS.values(), ids=CLAIMS)
def test_an_invalid_claim_is_refused_in_one_line_and_leaves_nothing(
    shell: command_line.CommandLine, make: Callable[[command_line.CommandLine], str], message: str
) -> None:
    before = shell.on_node("show", "-o", "json").out
    refused = shell.on_node("prepare", make(shell))
    assert (refused.status in {1, 2}, refused.out) == (True, "")
    assert refused.err.startswith("drakit: ")
    assert refused.err.count("\n") == 1
    assert message in refused.err
    assert shell.on_node("show", "-o", "json").out == before
    assert not list(shell.folder.glob("node/cdi/*.json"))
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0


def test_a_claim_that_was_replaced_by_another_of_its_name_is_refused(shell: command_line.CommandLine) -> None:
    first = shell.claim_file(command_line.mig())
    assert shell.on_node("prepare", first).status == 0
    second = shell.claim_file(command_line.mig(), uid="00000000-0000-4000-8000-000000000001")
    refused = shell.on_node("prepare", second)
    assert (refused.status, refused.out) == (1, "")
    assert "default/claim" in refused.err
    assert shell.on_node("unprepare", command_line.UID).status == 0
    assert shell.on_node("prepare", second).status == 0


def test_one_bad_claim_of_a_file_does_not_stop_the_others(shell: command_line.CommandLine) -> None:
    other = "00000000-0000-4000-8000-000000000002"
    good, bad = shell.claim_file(command_line.mig(), name="good"), shell.write("bad", {}, uid=other)
    both = shell.folder / "both.yaml"
    both.write_text("---\n".join(pathlib.Path(file).read_text() for file in (bad, good)))
    ran = shell.on_node("prepare", str(both))
    assert ran.status == 1
    assert ran.err == "drakit: default/bad: status.allocation: the claim is not allocated\n"
    assert "default/good" in ran.out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("show", "--mock", "dgx-h10"), "mock.machine: no mock machine 'dgx-h10'; did you mean dgx-h100? Known are dgx-a100-40gb,"),
        (
            ("show", "--mock", command_line.MACHINE, "--family", "gpus"),
            "--family: no device family 'gpus'; did you mean gpu? Installed are gpu,",
        ),
        (
            ("show", "--mock", "dgx-a100"),
            "mock.machine: no mock machine 'dgx-a100'; did you mean dgx-a100-40gb or dgx-a100-40gb-2gpu or dgx-a100-80gb? Known are",
        ),
        (("show", "--mock", "pdp-11"), "mock.machine: no mock machine 'pdp-11'; known are dgx-a100-40gb,"),
        (("show", "--mock", "/no/such/file"), "mock.machine: cannot read /no/such/file"),
        (("show", "--mock", command_line.MACHINE, "--family", "fpga"), "--family: no device family 'fpga'; installed are gpu, nic"),
        (("show", "--set", "node.nam=x"), "node.nam: is not a setting; did you mean node.name?"),
        (("show", "--set", "node.nam="), "node.nam: is not a setting; did you mean node.name?"),
        (("show", "--set", "node.name"), "node.name: write KEY=VALUE"),
        (("show", "--set", "=x"), "=x: write KEY=VALUE"),
        (("show", "--set", "nic.include=["), "nic.include: '[' is not YAML"),
        (("show", "--config", "/no/such/file"), "/no/such/file: cannot read"),
        (("show", "--mock", command_line.MACHINE, "--set", "gpu.shares=abc"), "gpu.shares: 'abc' is not a whole number"),
        (("show", "--mock", command_line.MACHINE, "--set", "nic.include=3"), "nic.include: 3 is not a list, such as [a, b]"),
        (
            ("show", "--mock", command_line.MACHINE, "--set", "log.level=loud"),
            "log.level: 'loud' is not one of debug, info, warning, error",
        ),
        (("show", "--mock", command_line.MACHINE, "--set", "publish.rescan=-1"), "publish.rescan: -1 is below the limit 0.1"),
        (("run", "--mock", command_line.MACHINE), "node.name: is required to publish"),
        (("unprepare", "neither"), "'neither' is neither a claim UID nor a file"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_wrong_setting_is_named_in_one_line(shell: command_line.CommandLine, arguments: tuple[str, ...], message: str) -> None:
    ran = shell.run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"drakit: {message}")
    assert ran.err.count("\n") == 1


def test_an_unknown_variable_is_an_error(shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAKIT_NODE__NAMES", "x")
    ran = shell.on_node("show")
    assert (ran.status, ran.out) == (2, "")
    assert (
        ran.err
        == "drakit: DRAKIT_NODE__NAMES: is not a setting, and every DRAKIT_ variable is read as one; did you mean DRAKIT_NODE__NAME?\n"
    )


def test_a_folder_of_another_machine_is_refused_with_both_fixes(shell: command_line.CommandLine) -> None:
    assert shell.on_node("show").status == 0
    folder = shell.folder / "node"
    ran = shell.run("show", "--mock", "dgx-h100", "--node", "node-1", "--folder", str(folder))
    assert (ran.status, ran.out) == (2, "")
    holds = f"{folder}/mock holds machine '{command_line.MACHINE}', not 'dgx-h100'"
    assert ran.err == f"drakit: mock.dir: {holds}: write --mock {command_line.MACHINE}, or give another --folder\n"
    assert shell.on_node("show").status == 0


def test_a_driver_without_a_kubelet_is_refused_and_makes_no_folder(
    shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PLUGINS_DIR", "REGISTRY_DIR", "CDI_DIR"):
        monkeypatch.setenv(f"DRAKIT_NODE__{name}", str(shell.folder / "system" / name.lower()))
    ran = shell.run("run", "--mock", command_line.MACHINE, "--node", "node-1")
    assert (ran.status, ran.out) == (2, "")
    missing = f"{shell.folder}/system/registry_dir does not exist: no kubelet has run on this node"
    assert ran.err == f"drakit: node.registry_dir: {missing}; with drakit cluster, add the --folder DIR that it prints\n"
    assert not (shell.folder / "system").exists()


def test_a_syntax_error_of_a_claim_is_reported_with_line_and_column(shell: command_line.CommandLine) -> None:
    file = shell.folder / "claim.yaml"
    file.write_text("kind: ResourceClaim\n  metadata: {}\n")
    ran = shell.on_node("prepare", str(file))
    assert ran.status == 2
    assert ran.err.startswith("drakit: claim.yaml: is neither YAML nor JSON: line 2, column 11: ")


def test_a_kubernetes_object_is_refused_as_mock_machine(shell: command_line.CommandLine) -> None:
    ran = shell.run("show", "--mock", shell.write("claim", {}))
    assert (ran.status, ran.out) == (2, "")
    assert "claim.yaml: is a Kubernetes object, not the description of a mock machine" in ran.err
