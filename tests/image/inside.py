"""Run by the image's own Python: import every module of drakit and show the help of every command. Prints one JSON object."""

import contextlib
import importlib
import io
import json
import pkgutil

import drakit
import drakit_gpu
import drakit_nic

LOCAL_CLUSTER = "drakit_cluster"
"""The package of the local cluster, which the image does not have."""


def modules() -> tuple[list[str], list[str]]:
    """Import every module; return the names of those that were imported, and of those that need the local cluster."""
    imported, without_cluster = [], []
    packages = (drakit, drakit_gpu, drakit_nic)
    for module in (module for package in packages for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")):
        if module.name == "drakit.__main__":
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != LOCAL_CLUSTER:
                raise
            without_cluster.append(module.name)
        else:
            imported.append(module.name)
    return imported, without_cluster


def helps() -> dict[str, str]:
    """Return the help of every command by its words."""
    import typer.main

    from drakit.cli import app

    found: dict[str, str] = {}

    def visit(command: object, words: tuple[str, ...]) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command.main(["--help"], prog_name=" ".join(words), standalone_mode=False)  # type: ignore[attr-defined] # a click command
        found[" ".join(words)] = out.getvalue()
        for name, part in getattr(command, "commands", {}).items():
            if not part.hidden:  # A tool that the image does not have says so instead.
                visit(part, (*words, name))

    visit(typer.main.get_command(app.app), ("drakit",))
    return found


def main() -> None:
    """Print what was imported and shown."""
    from kubernetes import client, config

    imported, without_cluster = modules()
    official = [client.ApiClient.__name__, config.load_kube_config.__name__]
    print(json.dumps({"imported": imported, "without_cluster": without_cluster, "helps": helps(), "official": official}))  # noqa: T201


if __name__ == "__main__":
    main()
