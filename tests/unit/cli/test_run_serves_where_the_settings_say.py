"""``drakit run`` on a node whose kubelet has another root: sockets, journal and CDI files are where the settings say, and nowhere else."""

import pathlib
import re
import threading
from collections.abc import Iterator

import pytest
import yaml

from drakit import settings as values
from drakit._proto import pluginregistration_v1_pb2 as wire
from drakit._proto import pluginregistration_v1_pb2_grpc as services
from drakit.cli import composition
from drakit.cli.commands import run
from drakit.journal import journal
from fakes import channels, command_line, demo, waits

DRIVER = "gpu.drakit.dev"
POD = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def root() -> Iterator[pathlib.Path]:
    with demo.short_folder() as made:
        yield made


def nobody(root: pathlib.Path) -> pathlib.Path:
    """A kubeconfig for an API server that is away."""
    path = root / "kubeconfig"
    cluster = {"server": "http://127.0.0.1:1"}
    context = {"cluster": "c", "user": "u"}
    path.write_text(
        yaml.dump(
            {
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": context}],
            },
            Dumper=yaml.CSafeDumper,
        )
    )
    return path


@pytest.fixture
def registered(root: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[pathlib.Path]:
    """The registration socket of a driver that serves; its pod's UID is the test's parameter."""
    registry = root / "plugins_registry"
    registry.mkdir(parents=True)
    settings = values.load(
        {
            "node.name": "node-1",
            "node.pod_uid": request.param,
            "node.plugins_dir": root / "plugins",
            "node.registry_dir": registry,
            "node.cdi_dir": root / "cdi",
            "mock.machine": command_line.MACHINE,
            "mock.dir": root / "mock",
            "api.kubeconfig": nobody(root),
        },
        environ={},
    )
    # A new journal is verified by the API server first, and this one is away.
    journal.Journal.open(root / "plugins" / DRIVER, driver=DRIVER, boot_id="an earlier boot").close()
    stop = threading.Event()
    serving = threading.Thread(target=run.serve, args=(settings, composition.families(settings, only=["gpu"]), stop), daemon=True)
    serving.start()
    try:
        assert waits.eventually(lambda: list(registry.glob("[!.]*-reg.sock")))
        yield next(registry.glob("[!.]*-reg.sock"))
    finally:
        stop.set()
        serving.join(waits.SECONDS)
    assert list(registry.iterdir()) == []


@pytest.mark.parametrize("registered", ["", POD], indirect=True, ids=["fixed", "by pod"])
def test_sockets_journal_and_cdi_files_are_below_the_folders_of_the_settings(
    root: pathlib.Path, registered: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    with channels.insecure(f"unix:{registered}") as channel:
        result = services.RegistrationStub(channel).GetInfo(wire.InfoRequest(), timeout=waits.SECONDS)
    by_pod = request.node.callspec.params["registered"]
    home = root / "plugins" / DRIVER
    assert result.endpoint == str(home / (f"dra-{POD}.sock" if by_pod else "dra.sock"))
    assert pathlib.Path(result.endpoint).is_socket()
    assert re.fullmatch(rf"{re.escape(DRIVER)}-{f'{POD}-' if by_pod else ''}[0-9a-f]{{8}}-reg\.sock", registered.name)
    assert (home / "journal.db").is_file()
    assert (root / "cdi").is_dir()
