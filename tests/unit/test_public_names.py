"""The door for driver authors: exactly the promised names, each importable, each documented."""

import inspect

import drakit


def test_every_public_name_is_importable_and_documented() -> None:
    for name in drakit.__all__:
        value = getattr(drakit, name)
        if inspect.isclass(value):
            assert value.__doc__, name


def test_nothing_else_is_public() -> None:
    modules = {name for name, value in vars(drakit).items() if inspect.ismodule(value)}
    shown = {name for name in vars(drakit) if not name.startswith("_")} - modules
    assert shown == set(drakit.__all__)


def test_importing_drakit_loads_no_library() -> None:
    import subprocess
    import sys

    code = "import sys, drakit; print([m for m in ('grpc', 'kubernetes', 'pydantic', 'yaml', 'sqlite3', 'typer') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
