"""Optional parts of drakit: which are installed, and what to install."""

import importlib.util

from drakit.core import errors

_LOCAL_CLUSTER = ("drakit_cluster", "httpx", "re2", "starlette", "trustme", "uvicorn")


def require_local_cluster() -> None:
    """Raise SettingsError with the command to run where the local cluster, or a library that it needs, is not installed."""
    missing = [name for name in _LOCAL_CLUSTER if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.SettingsError(
            f"the local cluster is not installed (missing: {', '.join(missing)}); run: pip install 'drakit[cluster]'"
        )


def require_tools() -> None:
    """Raise SettingsError with the command to run where drakit-tools, or the local cluster that it uses, is not installed."""
    require_local_cluster()
    if importlib.util.find_spec("drakit_tools") is None:
        raise errors.SettingsError("drakit-tools is not installed; run: pip install 'drakit[tools]'")


def require_report() -> None:
    """Raise SettingsError with the command to run where the library that draws reports is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise errors.SettingsError("--report needs matplotlib; run: pip install 'drakit[report]'")
