"""What was built, from what: checksums, and an in-toto statement with a SLSA provenance predicate (slsa.dev/provenance/v1).

The statement is not signed. The workflow of a release signs one of its own; this one is for those who build by hand.
"""

import hashlib
import json
import pathlib
from collections.abc import Sequence

SUMS = "SHA256SUMS"
STATEMENT = "provenance.intoto.json"


def digest(file: pathlib.Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write(folder: pathlib.Path, *, version: str, commit: str, inputs: Sequence[pathlib.Path], root: pathlib.Path) -> None:
    """Write the checksums of all files in ``folder``, and the statement about them. ``inputs`` are files of ``root`` with locked dependencies."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name not in {SUMS, STATEMENT})
    subjects = [{"name": file.name, "digest": {"sha256": digest(file)}} for file in files]
    locks = [{"name": str(file.relative_to(root)), "digest": {"sha256": digest(file)}} for file in inputs]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:drakit:make-release:v1",
                "externalParameters": {"version": version},
                "resolvedDependencies": [{"name": "drakit", "digest": {"gitCommit": commit}}, *locks],
            },
            "runDetails": {"builder": {"id": "urn:drakit:make-release:by-hand"}},
        },
    }
    (folder / STATEMENT).write_text(json.dumps(statement, indent=2) + "\n", "utf-8")
    listed = sorted([*files, folder / STATEMENT])
    (folder / SUMS).write_text("".join(f"{digest(file)}  {file.name}\n" for file in listed), "utf-8")
