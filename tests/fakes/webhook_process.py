"""``webhook`` as a process, of drakit or of an author's program."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Self

from fakes import tls_files, waits


class WebhookProcess:
    """A running webhook of a program, the module ``module`` in the folder ``path``, and the ports that its log names."""

    def __init__(self, files: tls_files.TlsFiles, module: str = "drakit", path: pathlib.Path | None = None, **variables: str) -> None:
        arguments = ["--address", "127.0.0.1:0", "--certificate", str(files.chain), "--key", str(files.key)]
        command = [sys.executable, "-m", module, "webhook", *arguments, "--set", "serve.address=127.0.0.1:0", "--log-format", "json"]
        environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {}), **variables}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        ports: dict[bool, int] = {}
        for line in self.process.stderr:
            result = json.loads(line)
            if result["event"] == "HTTP server started":
                ports[result["tls"]] = int(result["address"].rpartition(":")[2])
            if result["event"] == "webhook ready":
                break
        self.port, self.pages = ports[True], ports[False]

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}{path}", timeout=waits.SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
