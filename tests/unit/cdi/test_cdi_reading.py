"""Of a CDI file only what drakit writes is believed; anything else counts as not there, and the log says so."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from drakit.cdi import directory, spec
from drakit.core import edits, errors
from fakes import journal_samples as samples

DRIVER = "gpu.example.com"
NAME = edits.CdiName(driver=DRIVER, claim_uid=samples.uid(1), device="gpu-0")
OTHER = edits.CdiName(driver=DRIVER, claim_uid=samples.uid(1), device="gpu-1")

Document = dict[str, Any]


def changed(change: Callable[[Document], object]) -> bytes:
    """The richest of files, edited by hand."""
    document: Document = json.loads(spec.encode(NAME, samples.rich_edits()))
    change(document)
    return json.dumps(document).encode()


def inner(document: Document) -> Document:
    found = document["devices"][0]["containerEdits"]
    assert isinstance(found, dict)
    return found


def test_a_reformatted_file_is_read_the_same() -> None:
    assert spec.decode(NAME, changed(lambda _: None)) == samples.rich_edits()


@pytest.mark.parametrize(
    "change,field",
    [
        (lambda it: it.update(containerEdits={}), "document.containerEdits: is not a known field"),
        (lambda it: it.update(kind=f"{DRIVER}/other"), "is not about"),
        (lambda it: it["devices"].append(it["devices"][0]), "is not about"),
        (lambda it: it["devices"].clear(), "is not about"),
        (lambda it: it["devices"][0].update(name=OTHER.device_name), "is not about"),
        (lambda it: it["devices"][0].update(annotations={}), "annotations: is not a known field"),
        (lambda it: it.update(cdiVersion="0.5.0"), "cdiVersion: '0.5.0' is not '1.1.0'"),
        (lambda it: it.pop("cdiVersion"), "cdiVersion: is required"),
        (lambda it: it["devices"][0].update(containerEdits={}), "empty"),
        (lambda it: inner(it).update(additionalGids=[0]), "additionalGids: is not a known field"),
        (lambda it: inner(it).update(env={"A": "1"}), "env: must be a list"),
        (lambda it: inner(it).update(env=[1]), r"env\[0\]: must be text"),
        (lambda it: inner(it).update(env=["A=1", "A=2"]), "each name once"),
        (lambda it: inner(it).update(env=["A"]), "each name once"),
        (lambda it: inner(it).update(env=["=1"]), "must not be empty"),
        (lambda it: inner(it).update(env=["A=\x00"]), "NUL"),
        (lambda it: inner(it).update(env=["A=\ud800"]), "not valid Unicode"),
        (lambda it: inner(it)["mounts"][0].pop("hostPath"), "hostPath: is required"),
        (lambda it: inner(it)["mounts"][0].update(containerPath="here"), "not an absolute path"),
        (lambda it: inner(it)["mounts"][0].update(uid=0), "uid: is not a known field"),
        (lambda it: inner(it)["deviceNodes"][1].update(major=True), "major: must be a whole number"),
        (lambda it: inner(it)["deviceNodes"][1].update(major=237.0), "major: must be a whole number"),
        (lambda it: inner(it)["deviceNodes"][1].update(major=-1), "out of range"),
        (lambda it: inner(it)["deviceNodes"][1].pop("minor"), "major and minor"),
        (lambda it: inner(it)["deviceNodes"][0].update(type="s"), "not one of b, c, u, p"),
        (lambda it: inner(it)["hooks"][0].update(hookName="atEaster"), "hookName: must be one of"),
        (lambda it: inner(it)["hooks"][0].update(env=["A=1", "A=1"]), r"hooks\[0\].env"),
        (lambda it: inner(it)["netDevices"][0].update(name="../x"), "not an interface name"),
    ],
)
def test_a_file_drakit_would_not_write_is_refused_by_field(change: Callable[[Document], object], field: str) -> None:
    with pytest.raises(errors.CdiError, match=field):
        spec.decode(NAME, changed(change))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b'{"a": NaN}', b'{"kind": 1, "kind": 1}', b"9" * 5000],
    ids=["empty", "list", "null", "cut", "not text", "deep list", "deep object", "nan", "twice", "long number"],
)
def test_a_file_that_is_not_json_is_refused(content: bytes) -> None:
    with pytest.raises(errors.CdiError):
        spec.decode(NAME, content)
    assert spec.identity(content, DRIVER) is None


def test_a_file_over_the_limit_is_not_read_to_its_end(tmp_path: pathlib.Path) -> None:
    cdi = directory.Directory(tmp_path, driver=DRIVER)
    content = spec.encode(NAME, edits.Edits(env={"A": "1"}))
    (tmp_path / spec.file_name(NAME)).write_bytes(content + b" " * (spec.SIZE_MAX - len(content)))
    assert cdi.of(NAME.claim_uid) == {NAME: edits.Edits(env={"A": "1"})}
    with (tmp_path / spec.file_name(NAME)).open("ab") as file:
        file.write(b" ")
    assert cdi.of(NAME.claim_uid) == {NAME: None}
    with (tmp_path / spec.file_name(NAME)).open("ab") as file:
        file.truncate(1 << 33)
    assert cdi.of(NAME.claim_uid) == {NAME: None}


def test_implausible_edits_are_ignored_with_a_log_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    cdi = directory.Directory(tmp_path, driver=DRIVER)
    (tmp_path / spec.file_name(NAME)).write_bytes(changed(lambda it: inner(it).update(env=["A=1", "A=2"])))
    assert cdi.of(NAME.claim_uid) == {NAME: None}
    assert "each name once" in capsys.readouterr().err


def test_a_file_whose_name_does_not_match_its_content_is_ignored(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    cdi = directory.Directory(tmp_path, driver=DRIVER)
    (tmp_path / spec.file_name(OTHER)).write_bytes(spec.encode(NAME, samples.rich_edits()))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(spec.encode(NAME, samples.rich_edits()))
    (tmp_path / spec.file_name(NAME)).symlink_to(elsewhere)
    os.mkfifo(tmp_path / f"{spec.file_prefix(DRIVER)}{NAME.claim_uid}-pipe.json")
    assert cdi.of(NAME.claim_uid) == {}
    assert capsys.readouterr().err.count("content does not match its name") == 3


@pytest.mark.parametrize("request_", ["a/../b", "..", "a b", "-"])
def test_a_file_with_a_foreign_name_belongs_to_no_claim(tmp_path: pathlib.Path, request_: str) -> None:
    document = json.loads(spec.encode(NAME, samples.rich_edits()))
    document["devices"][0]["name"] += f"_{request_}"
    cdi = directory.Directory(tmp_path, driver=DRIVER)
    (tmp_path / spec.file_name(NAME)).write_text(json.dumps(document))
    assert cdi.of(NAME.claim_uid) == {}
