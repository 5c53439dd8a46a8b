"""A claim's sharing that a mock machine's node cannot prepare is refused with the reason and the fix."""

import pytest

from fakes import command_line


def parameters(kind: str, **sharing: object) -> list[object]:
    given = {"apiVersion": "gpu.drakit.dev/v1", "kind": kind, "sharing": sharing}
    return [{"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "gpu.drakit.dev", "parameters": given}}]


def test_mps_on_a_node_without_a_pod_template_is_refused_and_the_setting_is_named(shell: command_line.CommandLine) -> None:
    ran = shell.on_node("prepare", shell.claim_file(command_line.mig(), config=parameters("MigConfig", strategy="MPS")))
    assert ran.status == 1
    assert "parameters.sharing.strategy: MPS is not set up on this node" in ran.err
    assert ran.err.rstrip().endswith("set gpu.mps_template to its NAMESPACE/NAME")
    assert shell.on_node("unprepare", command_line.UID).status == 0


@pytest.mark.parametrize(
    "what, sharing",
    [
        ("MPS; request a partition with a MigConfig", {"strategy": "MPS"}),
        ("time slices; request a partition", {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
    ],
)
def test_a_whole_gpu_in_mig_mode_is_refused_with_the_reason_and_the_fix(
    shell: command_line.CommandLine, what: str, sharing: dict[str, object]
) -> None:
    ran = shell.on_node("prepare", shell.claim_file(command_line.mig("gpu-0"), config=parameters("GpuConfig", **sharing)))
    assert ran.status == 1
    assert "is in MIG mode, in which a whole GPU has no " + what in ran.err
    assert ran.err.rstrip().endswith("or let its admin turn MIG mode off")
