"""Import modules by name and print, as JSON, how much resident memory each package brought: ``python memory.py MODULE...``.

What a package's import took is counted without what it imported in turn, so that the figures add up.
"""

import builtins
import collections
import importlib
import json
import pathlib
import sys
from typing import Any

_PAGE = 4096


def resident() -> int:
    """Resident bytes of this process."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def main(modules: list[str]) -> None:
    """Import and print ``{package: MiB}``."""
    before = resident()
    own: collections.Counter[str] = collections.Counter()
    inner = [0]
    plain = builtins.__import__

    def counting(name: str, *given: Any, **named: Any) -> Any:
        level = named.get("level", given[3] if len(given) > 3 else 0)
        package = str((given[0] or {}).get("__package__") if level and given else name).partition(".")[0]
        start = resident()
        inner.append(0)
        try:
            return plain(name, *given, **named)
        finally:
            grown = resident() - start
            own[package] += grown - inner.pop()
            inner[-1] += grown

    builtins.__import__ = counting
    for module in modules:
        importlib.import_module(module)
        # import_module goes past the counter for the module itself; what is left over is its own code.
    builtins.__import__ = plain
    total = resident() - before
    own["drakit"] += total - sum(own.values())
    sys.stdout.write(json.dumps({"interpreter": before / 2**20, **{name: size / 2**20 for name, size in own.most_common()}}))


if __name__ == "__main__":
    main(sys.argv[1:])
