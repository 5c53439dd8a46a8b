"""Checks of prepared claims: whether their devices are as they were granted, and whether the files of their CDI files exist on the host."""

import functools
import pathlib
from collections.abc import Callable, Iterator

from drakit import settings as values
from drakit.cdi import host_nodes
from drakit.cli import views
from drakit.core import context, lifecycle
from drakit.core.advanced import Finding
from drakit.telemetry import plurals

TOPIC = "claims"
Mounted = Callable[[pathlib.Path], pathlib.Path | None]
"""Returns where this process sees a path of the host that only the family mounts, None for any other path."""
_SHOWN = 3


def examine(settings: values.Settings, seen: views.View, mounted: Mounted) -> Iterator[Finding]:
    """Check the prepared claims of one family."""
    prepared = [entry for entry in seen.entries if entry.state is lifecycle.State.PREPARED]
    for entry in prepared:
        yield from _changes(entry, seen)
        yield from _files(entry, functools.partial(as_seen, settings, mounted))


def _changes(entry: lifecycle.Entry, seen: views.View) -> Iterator[Finding]:
    for name in dict.fromkeys(grant.device.name for grant in entry.grants):
        health, displaced = seen.health.get(name), seen.displaced.get(name)
        changed = displaced.reason if displaced and not displaced.is_withheld else ""
        reason = health.message if health is not None and health.health is context.Health.UNHEALTHY else changed
        if reason:
            fix = "delete the pods of the claim; its device is offered again after it is unprepared"
            yield Finding.failed(TOPIC, str(entry.claim), f"{name}: {reason}", fix)


def _files(entry: lifecycle.Entry, seen_as: "functools.partial[pathlib.Path | None]") -> Iterator[Finding]:
    contents = [grant.edits for grant in entry.grants if grant.edits is not None]
    missing = list(dict.fromkeys(path for content in contents for path in host_nodes.missing_files(content, seen_as)))
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        message = f"CDI file names {plurals.counted(len(missing), 'missing file')}: {', '.join(missing[:_SHOWN])}{more}"
        fix = (
            "no container can start with the claim; run the driver, which rewrites the CDI file within seconds, or install the files again"
        )
        yield Finding.failed(TOPIC, str(entry.claim), message, fix)


def as_seen(settings: values.Settings, mounted: Mounted, path: str) -> pathlib.Path | None:
    """Return where this process sees a path of the host; None for one that the driver's pod does not mount."""
    host_path = pathlib.Path(path)
    if (known := mounted(host_path)) is not None:
        return known
    if settings.node.pod_uid and not host_path.is_relative_to(settings.node.plugins_dir):
        return None
    return host_path
