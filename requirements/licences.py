"""Complete a CycloneDX list of packages: add each one's licence, and drop those that are for other systems.

``python licences.py FILE.cdx.json FOLDER`` reads the licences from the metadata of what pip installed in FOLDER. The same packages give the same
bytes. It fails for a package whose metadata has no licence.
"""

import importlib.metadata
import json
import pathlib
import re
import sys
import typing
from collections.abc import Iterator

from cyclonedx import schema
from cyclonedx.validation import json as validation

_UNKNOWN = ("", "UNKNOWN")
_CLASSIFIER = "License :: "


def of(metadata: importlib.metadata.PackageMetadata) -> str:
    """Return the licence as an SPDX expression where the package has one, else in its own words; "" where it has none."""
    expression, text = (metadata.get(key, "") for key in ("License-Expression", "License"))
    classifiers = [entry.rsplit(" :: ", 1)[1] for entry in metadata.get_all("Classifier") or () if entry.startswith(_CLASSIFIER)]
    texts = [expression, text if "\n" not in text else "", ", ".join(sorted(classifiers))]
    return next((given for given in texts if given not in _UNKNOWN), "")


def complete(listed: dict[str, typing.Any], folder: pathlib.Path) -> Iterator[str]:
    """Change the list; yield the names of packages without a licence."""
    installed = {_normalized(entry.metadata["Name"]): entry.metadata for entry in importlib.metadata.distributions(path=[str(folder)])}
    listed["components"] = [entry for entry in listed["components"] if _normalized(entry["name"]) in installed]
    kept = {entry["bom-ref"] for entry in listed["components"]}
    roots = {listed["metadata"]["component"]["bom-ref"]}
    listed["dependencies"] = [entry for entry in listed["dependencies"] if entry["ref"] in kept | roots]
    for entry in listed["dependencies"]:
        if "dependsOn" in entry:
            entry["dependsOn"] = [ref for ref in entry["dependsOn"] if ref in kept]
    for entry in listed["components"]:
        metadata = installed[_normalized(entry["name"])]
        licence = of(metadata)
        if not licence:
            yield entry["name"]
        is_expression = "License-Expression" in metadata
        entry["licenses"] = [{"expression": licence}] if is_expression else [{"license": {"name": licence}}]


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(file: pathlib.Path, folder: pathlib.Path) -> None:
    """Complete the file."""
    listed = json.loads(file.read_text("utf-8"))
    if without := sorted(complete(listed, folder)):
        sys.exit(f"{file}: no licence in the metadata of {', '.join(without)}")
    text = json.dumps(listed, indent=2, sort_keys=True) + "\n"
    if wrong := validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"{file}: {wrong}")
    file.write_text(text, "utf-8")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
