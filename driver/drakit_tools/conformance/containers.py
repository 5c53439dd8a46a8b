"""What containers get: the edits behind the CDI ids of an answer, as a container runtime reads them from the folder of CDI files."""

import itertools
import pathlib
import re
from collections.abc import Iterator, Sequence

from drakit.testing import parts
from drakit_cluster.kubelet.plugins.endpoint import Answer
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.runtime import Edits, SpecCache, UnresolvableError, host_paths, specs

_CDI_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")


def require_resolved(folder: pathlib.Path | None, answers: Sequence[Answer]) -> None:
    """Raise AssertionError unless all CDI ids are well formed and, with a folder, a runtime resolves them."""
    ids = [name for answer in answers for device in answer.devices for name in device.cdi_ids]
    malformed = [name for name in ids if not _CDI_ID.fullmatch(name)]
    if malformed:
        raise AssertionError(f"{malformed[:1]} is no CDI id; it must be vendor/class=name")
    if folder is not None:
        _edits(folder, ids)


def defined(folder: pathlib.Path) -> frozenset[str]:
    """Return the CDI devices that valid files in the folder define."""
    return SpecCache((folder,)).defined()


def require_on_host(folder: pathlib.Path, answer: Answer, claim: str) -> None:
    """Raise AssertionError if a container of the claim cannot start, because the host lacks a device node, a mount or a hook's program."""
    edits = specs.merge(_edits(folder, _ids(answer.devices)))
    if problem := host_paths.device_problem(edits) or host_paths.start_problem(edits):
        raise AssertionError(f"{claim}: no container can start with its CDI files: {problem}")


def require_one_value(folder: pathlib.Path, devices: Sequence[tuple[str, PreparedDevice]]) -> None:
    """Raise AssertionError if two devices, each with its claim, set a variable to two values: a container with both devices has only one."""
    of_devices = [(f"{device.device} of {claim}", _variables(_edits(folder, _ids([device])))) for claim, device in devices]
    for (one, first), (two, second) in itertools.combinations(of_devices, 2):
        for variable in sorted(first.keys() & second.keys()):
            if first[variable] != second[variable]:
                raise AssertionError(
                    f"{variable} is {first[variable]!r} for {one} and {second[variable]!r} for {two}, and a container with both devices has "
                    "only one value; put what identifies the device and its claim into the variable's name"
                )


def parts_of(folder: pathlib.Path, patterns: Sequence[str], answer: Answer) -> Iterator[parts.Part]:
    """Yield the parts of hardware that the claim's containers get, by the names of variables and device nodes. Raises AssertionError."""
    edits = _edits(folder, _ids(answer.devices))
    nodes = [node.host_path or node.path for edit in edits for node in edit.device_nodes]
    return parts.of_container(patterns, _variables(edits), nodes)


def _ids(devices: Sequence[PreparedDevice]) -> Sequence[str]:
    return [name for device in devices for name in device.cdi_ids]


def _variables(edits: Sequence[Edits]) -> dict[str, str]:
    return dict(variable.split("=", 1) for edit in edits for variable in edit.env)


def _edits(folder: pathlib.Path, ids: Sequence[str]) -> Sequence[Edits]:
    files = SpecCache((folder,))
    try:
        return files.edits(ids)
    except UnresolvableError as error:
        ignored = [f"{path.name}: {text}" for path, text in files.problems().items()]
        raise AssertionError(f"{error}; {'; '.join(ignored) or f'no valid file in {folder} defines them, or two do'}") from error
