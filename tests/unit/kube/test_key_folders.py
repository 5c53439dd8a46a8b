"""Certificates and keys out of a kubeconfig lie in a folder of the process's own, and what a killed process leaves goes with the next."""

import base64
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile

import trustme
import yaml

from drakit.kube import access
from fakes import waits

LOAD = """
import pathlib, signal, sys
from drakit.kube import client
client.connect(pathlib.Path(sys.argv[1]))
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever runs the tests in the background has it ignored.
print("connected", flush=True)
signal.pause()
"""


def kubeconfig(folder: pathlib.Path) -> pathlib.Path:
    """One with a client certificate and its key inline, which only the official client takes."""
    authority = trustme.CA()
    leaf = authority.issue_cert("admin.example.com")
    inline = {
        "client-certificate-data": leaf.cert_chain_pems[0].bytes(),
        "client-key-data": leaf.private_key_pem.bytes(),
        "certificate-authority-data": authority.cert_pem.bytes(),
    }
    coded = {name: base64.b64encode(value).decode() for name, value in inline.items()}
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": coded.pop("certificate-authority-data")},
            }
        ],
        "users": [{"name": "u", "user": coded}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def begin(config: pathlib.Path, folder: pathlib.Path) -> subprocess.Popen[str]:
    """A process with a client for the kubeconfig, which keeps its temporary files in the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, str(config)], env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "connected\n"
    return process


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait(waits.SECONDS)
    assert process.stdout is not None
    process.stdout.close()


def test_keys_lie_in_a_private_folder_and_a_killed_processs_go_with_the_next(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    config = kubeconfig(tmp_path)
    first, second = begin(config, place), begin(config, place)
    folders = sorted(place.iterdir())
    assert [(one.name.startswith(access.KEYS_PREFIX), stat.S_IMODE(one.stat().st_mode)) for one in folders] == [(True, 0o700)] * 2
    assert any(b"PRIVATE KEY" in file.read_bytes() for one in folders for file in one.iterdir())
    end(first, signal.SIGKILL)
    end(second, signal.SIGKILL)
    assert sorted(place.iterdir()) == folders, "nobody was left to remove them"
    third = begin(config, place)
    assert [one for one in place.iterdir() if one in folders] == []
    end(third, signal.SIGINT)
    assert list(place.iterdir()) == []


def test_folders_of_living_processes_and_what_only_looks_like_one_stay(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / f"{access.KEYS_PREFIX}link").symlink_to(elsewhere)
    (place / f"{access.KEYS_PREFIX}file").write_text("")
    alive = begin(kubeconfig(tmp_path), place)
    before = sorted(place.iterdir())
    access.sweep_key_folders(place)
    assert sorted(place.iterdir()) == before
    assert elsewhere.is_dir()
    end(alive, signal.SIGINT)


def test_a_process_has_one_folder() -> None:
    found = access.key_folder()
    assert found is not None
    assert found == access.key_folder()
    assert found.parent == pathlib.Path(tempfile.gettempdir())
