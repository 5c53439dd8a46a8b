"""Optional parts of drakit: which are installed, and what to install."""

import importlib.util
import json
import pathlib
import shlex
import urllib.parse
from collections.abc import Mapping

from drakit.core import errors

_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "cluster": ("cluster",),
    "tools": ("cluster", "driver/drakit_tools"),
    "gpu": ("driver/drakit_gpu",),
    "nic": ("driver/drakit_nic",),
}
"""The folders of a checkout that have the distributions of each extra."""
_LOCAL_CLUSTER = ("drakit_cluster", "re2", "starlette", "trustme", "uvicorn")


def command(*names: str) -> str:
    """Return the command that installs these extras from the place that drakit itself came from (PEP 610); an index may not have them."""
    extra = f"'drakit[{','.join(names)}]'"
    url, commit, is_folder = _origin()
    if not url:
        return f"pip install {extra}"
    folders = list(dict.fromkeys(folder for name in names for folder in _FOLDERS[name]))
    if commit:
        return " ".join(["pip install", *(shlex.quote(f"git+{url}@{commit}#subdirectory={folder}") for folder in folders)])
    address = urllib.parse.urlsplit(url)
    place = pathlib.Path(urllib.parse.unquote(address.path))
    if place.suffix == ".whl":
        links = str(place.parent) if address.scheme == "file" else urllib.parse.urljoin(url, ".")
        return f"pip install --find-links {shlex.quote(links)} {extra}"
    if not is_folder:
        return f"pip install {extra}"
    return " ".join(["pip install", *(shlex.quote(str(place / folder)) for folder in folders)])


def _origin() -> tuple[str, str, bool]:
    """Return the URL that drakit was installed from, the commit of a repository, and whether it is a folder.

    Both texts are empty if it came from an index or that is not known.
    """
    import importlib.metadata  # noqa: PLC0415 - it takes 15 ms, and only a message needs it

    try:
        text = importlib.metadata.distribution("drakit").read_text("direct_url.json")
        record = json.loads(text or "{}")
        return str(record.get("url", "")), str(record.get("vcs_info", {}).get("commit_id", "")), "dir_info" in record
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return "", "", False


def require_local_cluster() -> None:
    """Raise SettingsError with the command to run where the local cluster, or a library that it needs, is not installed."""
    missing = [name for name in _LOCAL_CLUSTER if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.SettingsError(f"the local cluster is not installed (missing: {', '.join(missing)}); run: {command('cluster')}")


def require_tools() -> None:
    """Raise SettingsError with the command to run where drakit-tools, or the local cluster that it uses, is not installed."""
    require_local_cluster()
    if importlib.util.find_spec("drakit_tools") is None:
        raise errors.SettingsError(f"drakit-tools is not installed; run: {command('tools')}")


def require_report() -> None:
    """Raise SettingsError with the command to run where the library that draws reports is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise errors.SettingsError("--report needs matplotlib; run: pip install matplotlib")
