"""The page about rights lists the rights of the manifests, and names log messages and findings that exist."""

import re

from drakit import families, settings
from drakit_gpu import options as gpu_options
from fakes import installed_drivers, manifests

PAGE = (manifests.ROOT / "docs" / "reference" / "rbac.md").read_text("utf-8")
SOURCES = "".join(file.read_text("utf-8") for file in (manifests.ROOT / "driver").rglob("*.py"))
FOLDERS = ("daemonset/overlays/gpu-nic", "daemonset/overlays/mock", manifests.TPU)
DRIVERS = {name: settings.defaults().group(name).driver_name for name in ("gpu", "nic", "tpu")}

Right = tuple[str, str, str, str]
"""Role, verb, resource, and the name of the only object, empty for all."""


def rows() -> list[list[str]]:
    """Return the cells of every row about a right."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| `drakit-")]
    return [row for row in cells if row[-1] in ("failed", "warning", "-")]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def listed() -> dict[Right, list[str]]:
    """Return the rights of the page with the cells of their rows."""
    return {(role, words(row[1])[0], *resource(row[2])): row for row in rows() for role in words(row[0])}


def resource(cell: str) -> tuple[str, str]:
    name, *only = words(cell)
    return name, only[0] if only else ""


def shipped() -> set[Right]:
    roles = [item for folder in FOLDERS for item in manifests.rendered(folder) if item["kind"] in ("Role", "ClusterRole")]
    return {
        (role["metadata"]["name"], verb, resource, name)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


@manifests.needs_kubectl
def test_the_page_lists_every_right_of_the_manifests_and_no_other() -> None:
    assert set(listed()) == shipped()
    assert len(shipped()) > 30


def test_every_log_message_of_the_page_is_one_of_the_driver() -> None:
    messages = {message for row in rows() for message in words(row[4])}
    assert messages == {message for message in messages if f'"{message}"' in SOURCES}
    assert len(messages) > 5


def options_of(family: str) -> object:
    """The default settings, and MPS daemons in pods."""
    if family == "gpu":
        return gpu_options.GpuOptions(mps_template=f"{manifests.NAMESPACE}/drakit-mps")
    kind = installed_drivers.of(family)
    assert kind.options is not None
    return kind.options()


def test_the_doctor_asks_for_the_rights_of_node_drivers_with_the_verdict_of_the_page() -> None:
    for family in DRIVERS:
        known = {
            (verb, f"{right.resource}/{right.subresource}".strip("/"), right.name): "failed" if right.needed else "warning"
            for right in families.rights(installed_drivers.of(family), options_of(family))
            for verb in right.verbs
        }
        result = {right[1:]: row[5] for right, row in listed().items() if right[0].endswith((f"-{family}", f"-{family}-mps"))}
        assert known == result
