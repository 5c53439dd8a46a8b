"""The reference pages say what the program has: generated pages have every public name, tables of names are complete and hold nothing else."""

import inspect
import pathlib
import re
import stat
import subprocess
import sys

import drakit
from drakit import machines, testing
from drakit.core import errors, inventory, lifecycle
from drakit_gpu.mock import machine
from fakes import installed_drivers, waits
from unit.docs import markdown


def page(name: str) -> str:
    return markdown.read(markdown.REFERENCE / name)


def section(text: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_the_generator_writes_pages_that_git_ignores(tmp_path: pathlib.Path) -> None:
    markdown.generator().main(tmp_path)
    ignored = (markdown.ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {file.name for file in tmp_path.iterdir()} == set(markdown.GENERATED)
    assert [name for name in markdown.GENERATED if f"/docs/reference/{name}" not in ignored] == []


def test_every_public_name_has_a_section() -> None:
    headings = set(re.findall(r"^### (\w+)$", page("author.md"), re.MULTILINE))
    assert headings == {*drakit.__all__, *testing.__all__}


def offered(family: str, folder: pathlib.Path, machine: str = "dgx-a100-40gb-2gpu") -> inventory.Inventory:
    """Everything that a shipped machine offers, flat."""
    choice = machines.Choice(name=machine, directory=folder, owner="docs")
    return installed_drivers.build(family, node="docs", machine=choice).discover().flat()


def test_every_counter_of_a_gpu_is_listed(tmp_path: pathlib.Path) -> None:
    counters = {name for held in offered("gpu", tmp_path).counter_sets for name in held.counters}
    slices = {name for name in counters if name.startswith("memory-slice-")}
    assert slices == {f"memory-slice-{index}" for index in range(8)}
    assert markdown.table_names(section(page("devices-gpu.md"), "Counters")) == (counters - slices) | {"memory-slice-0", "memory-slice-7"}


def test_every_error_and_fault_is_listed_and_no_other() -> None:
    raised = {name for name, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, errors.DrakitError)}
    faults = {fault.name for fault in errors.ClaimFault}
    assert markdown.table_names(page("errors.md")) == (raised - {"DrakitError"}) | faults | {"ClaimFault"}


def test_every_service_and_method_is_listed_and_no_other() -> None:
    served = set()
    for file in (markdown.ROOT / "protos").rglob("*.proto"):
        text = file.read_text("utf-8")
        package, service = re.search(r"^package (.+);", text, re.MULTILINE), re.search(r"^service (\w+)", text, re.MULTILINE)
        assert package is not None
        assert service is not None
        served |= {(f"{package[1]}.{service[1]}", method) for method in re.findall(r"^  rpc (\w+)", text, re.MULTILINE)}
    listed = set(re.findall(r"^\| `([\w.]+)` \| `(\w+)` \|", section(page("wire.md"), "Services"), re.MULTILINE))
    assert listed == served


def test_the_layers_shown_are_those_that_are_checked() -> None:
    project = (markdown.ROOT / "pyproject.toml").read_text("utf-8")
    layers = re.search(r"^layers = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert layers is not None
    checked = re.findall(r'"(.+)"', layers[1])
    blocks = [block.text.splitlines() for block in markdown.blocks(markdown.ROOT / "docs" / "explanation" / "architecture.md")]
    assert checked in blocks


def test_every_folder_of_the_package_is_explained() -> None:
    text = (markdown.ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    package = pathlib.Path(drakit.__file__).parent
    folders = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert markdown.table_names(section(text, "Folders")) == folders | modules


def test_the_life_cycle_shown_is_the_one_in_the_code() -> None:
    text = (markdown.ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    shown = set(re.findall(r"^(\w+) +--(\w+)--> +(\w+) ", text, re.MULTILINE))
    assert shown == {(before.value, move.value, after.value) for (before, move), after in lifecycle.TABLE.items()}


def test_the_mock_machines_and_models_listed_are_those_that_ship() -> None:
    howto = markdown.ROOT / "docs" / "howto"
    assert markdown.table_names((howto / "run-without-kubernetes.md").read_text("utf-8")) == set(machines.names())
    result = (howto / "add-a-machine.md").read_text("utf-8").rsplit("The models are:", 1)[1]
    assert set(re.findall(r"`([\w-]+)`", result)) == set(machine.model_names())


CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: both, namespace: default, uid: 4cf8db2d-06c0-4d70-9a51-e59b25b2c16c}
status:
  allocation:
    devices:
      results:
      - {request: gpu, driver: gpu.drakit.dev, pool: local, device: gpu-0}
      - {request: net, driver: nic.drakit.dev, pool: local, device: pci-0000-0c-00-0, shareID: 1b4e28ba-2fa1-41d2-883f-0016d3cca427,
         consumedCapacity: {bandwidth: 1G}}
"""


def test_files_have_the_modes_that_the_page_tells(tmp_path: pathlib.Path) -> None:
    claim = tmp_path / "claim.yaml"
    claim.write_text(CLAIM)
    command = [sys.executable, "-m", "drakit", "prepare", str(claim), "--mock", "dgx-a100-40gb-2gpu", "--folder", str(tmp_path / "lab")]
    subprocess.run(command, check=True, capture_output=True, timeout=waits.SECONDS)
    result = dict(re.findall(r"^\| `([^`]+)`.* \| (0\d{3}) \|", section(page("wire.md"), "Files"), re.MULTILINE))
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lab").rglob("*") if path.is_file()}
    kinds = {path: _kind(path) for path in found}
    assert {path.name: f"{mode:04o}" for path, mode in found.items()} == {path.name: result[kind] for path, kind in kinds.items()}
    assert {"journal.db", "locks/<name>.lock", "boot_id"} < set(kinds.values())


def _kind(path: pathlib.Path) -> str:
    """The row of the page that a file belongs to."""
    if path.parent.name == "locks":
        return "locks/<name>.lock"
    if path.parent.name == "claims":
        return "claims/shared.lock"
    if path.parent.name == "cdi":
        return "<driver>-claim_<claim UID>-<device>[-<share id>][_<request>].json"
    if "device-metadata" in path.parts:
        return "device-metadata/<claim UID>/<request>/metadata.json"
    if "driver-root" in path.parts:
        return "driver-root/usr/bin/<program>" if path.parent.name == "bin" else "driver-root/usr/lib64/<library>"
    return path.name.replace("nics.", "gpus.")


def test_the_generator_finds_a_type_that_authors_cannot_import() -> None:
    made = markdown.generator()
    assert made.hidden_types("```text\ndef bind(grant: drivers.Grant) -> abc.ABC\n```") == ["drivers.Grant"]
    assert made.hidden_types("- `merge(configs: Sequence[claims.OpaqueConfig])`: Joins them.") == ["claims.OpaqueConfig"]
    assert made.hidden_types(page("author.md")) == []
