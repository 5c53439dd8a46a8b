"""The objects of a cluster in a file, so that a restarted cluster has them.

Each line is a JSON document: a head, then each change in order. At start the file is read, then rewritten with one line per object, in a
temporary file that replaces it. A line is passed to the kernel before any reader sees the change, so that no crash of the process loses a
change; a power failure may lose the last ones. A last line without a line end was written incompletely and is ignored.
"""

import contextlib
import json
import os
import pathlib
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

_HEAD: Object = {"file": "objects of a drakit local cluster", "format": 1}
_REWRITE_BYTES = 64 << 20
_KINDS = {served.qualified: served for served in resources.ALL}


class StateError(Exception):
    """A file whose objects cannot be read or stored. The message names the file and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a file: the objects of each kind, and the version of the last change."""

    objects: list[tuple[Resource, Object]]
    version: int


class StateLog:
    """The file at ``path``, created where it is missing. Used under the store's lock; only one process may have it open.

    The store rewrites it once ``rewrite_bytes`` have been appended.
    """

    def __init__(self, path: pathlib.Path, *, rewrite_bytes: int = _REWRITE_BYTES) -> None:
        self._path = path
        self._rewrite_bytes = rewrite_bytes
        self._file = -1
        self._size = 0
        self._added = 0

    @property
    def is_long(self) -> bool:
        """Whether the file is long enough to :meth:`rewrite` it."""
        return self._added > self._rewrite_bytes

    def read(self) -> Contents:
        """Return the contents of the file, empty where it does not exist. Raises StateError for a file that cannot be read completely."""
        try:
            content = _content(self._path)
        except FileNotFoundError:
            return Contents(objects=[], version=0)
        except OSError as error:
            raise StateError(f"{self._path}: cannot be read: {error.strerror}") from error
        objects: dict[tuple[Resource, str, str], Object] = {}
        version = 0
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            try:
                version = max(version, _replay(json.loads(line), objects, is_head=number == 1))
            except (ValueError, KeyError, RecursionError) as error:
                text = f"line {number} cannot be read ({error}); move the file away to start with an empty cluster"
                raise StateError(f"{self._path}: {text}") from error
        return Contents(objects=[(resource, obj) for (resource, _, _), obj in objects.items()], version=version)

    def rewrite(self, objects: Iterable[tuple[Resource, Object]], version: int) -> None:
        """Rewrite the file with these objects, and append to it from now on. On StateError the file is unchanged."""
        temporary = self._path.with_name(f"{self._path.name}.new")
        lines: list[Object] = [_HEAD, {"version": version}]
        lines += [{"kind": resource.qualified, "object": obj} for resource, obj in objects]
        content = b"".join(map(_line, lines))
        try:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _write(file, content)
                os.fsync(file)
                temporary.replace(self._path)
            except BaseException:
                os.close(file)
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written: {error.strerror}") from error
        self.close()
        self._file, self._size, self._added = file, len(content), 0

    def put(self, resource: Resource, obj: Object) -> None:
        """Append an object's current state. On StateError the file is unchanged."""
        self._add({"kind": resource.qualified, "object": obj})

    def remove(self, resource: Resource, namespace: str, name: str, version: int) -> None:
        """Append the removal of an object at ``version``. On StateError the file is unchanged."""
        self._add({"kind": resource.qualified, "removed": [namespace, name], "version": version})

    def close(self) -> None:
        """Close the file; nothing can be appended after this."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _add(self, change: Object) -> None:
        line = _line(change)
        try:
            _write(self._file, line)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise StateError(f"{self._path}: the change cannot be stored: {error.strerror}") from error
        self._size += len(line)
        self._added += len(line)


def _content(path: pathlib.Path) -> bytes:
    """Return the contents of a regular file. Raises OSError for a link, StateError for anything else that is not a regular file."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StateError(f"{path}: is not a regular file; move it away to start with an empty cluster")
        return file.read()


def _replay(change: Json, objects: dict[tuple[Resource, str, str], Object], *, is_head: bool) -> int:
    """Apply one line to the objects; return its version. Raises ValueError or KeyError for an invalid line."""
    if is_head:
        if change != _HEAD:
            raise ValueError("the file is of another kind or version")
        return 0
    if not isinstance(change, dict):
        raise ValueError("no object")  # noqa: TRY004 -- the file is wrong, not an argument's type.
    if "kind" not in change:
        return json_types.number(change, "version")
    resource = _KINDS[json_types.text(change, "kind")]
    if "removed" in change:
        namespace, name = json_types.strings(change, "removed")
        objects.pop((resource, namespace, name), None)
        return json_types.number(change, "version")
    obj = json_types.mapping(change, "object")
    metadata = json_types.mapping(obj, "metadata")
    objects[resource, json_types.text(metadata, "namespace"), json_types.text(metadata, "name")] = obj
    return int(json_types.text(metadata, "resourceVersion"))


def _line(change: Object) -> bytes:
    return json.dumps(change, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
