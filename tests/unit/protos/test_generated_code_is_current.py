import pathlib
import subprocess
import sys

import pytest

from fakes import waits

ROOT = pathlib.Path(__file__).parents[3]
COMMITTED = ROOT / "driver" / "drakit" / "_proto"


def test_what_is_committed_is_what_the_generator_writes(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("grpc_tools", reason="needs grpcio-tools")
    subprocess.run([sys.executable, str(ROOT / "protos" / "generate.py"), str(tmp_path)], check=True, timeout=waits.SECONDS)
    generated = {path.name: path.read_bytes() for path in (tmp_path / "drakit" / "_proto").iterdir()}
    committed = {path.name: path.read_bytes() for path in COMMITTED.iterdir() if path.suffix in {".py", ".pyi"}}
    del committed["__init__.py"]
    assert generated == committed
