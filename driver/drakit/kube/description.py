"""The API server's description of itself: its version, and which fields of a ResourceSlice its schema lacks.

A description that fails takes nothing away: what was known stays known, and at first nothing is known to be lacking, so that probe slices decide.
It is read again after a pause that grows to a minute.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from drakit.core import api_server, ports
from drakit.kube import fields, slice_schema, transport
from drakit.telemetry import logs

VERSION_PATH = "/version"
VERSION_SECONDS = 60.0
"""How long a version is taken for current, and the longest pause after a failure."""
FIRST_PAUSE = 1.0

_log = logs.get_logger(__name__)

Read = TypeVar("Read")


class Description:
    """Reads the version at most once a minute, and the schema once for each version."""

    def __init__(self, api: transport.Transport, clock: ports.Clock) -> None:
        self._api = api
        self._clock = clock
        self._known = api_server.ApiServer(version="")
        self._has_schema = False
        self._read_at = clock.monotonic()
        self._pause = FIRST_PAUSE

    def current(self) -> api_server.ApiServer:
        """Return what is known of the server, after reading what is due; never raises."""
        if self._clock.monotonic() < self._read_at:
            return self._known
        version = self._answer(VERSION_PATH, lambda answer: fields.Field(answer)["gitVersion"].text_or_empty())
        if version is not None and version != self._known.version:
            self._known, self._has_schema = api_server.ApiServer(version=version), False
        lacks = None if self._has_schema else self._answer(slice_schema.PATH, slice_schema.lacks)
        if lacks is not None:
            self._known, self._has_schema = dataclasses.replace(self._known, lacks=lacks), True
            _log.info("API server described", version=self._known.version, lacks=sorted(lacks))
        is_complete = version is not None and self._has_schema
        self._read_at = self._clock.monotonic() + (VERSION_SECONDS if is_complete else self._pause)
        self._pause = FIRST_PAUSE if is_complete else min(2 * self._pause, VERSION_SECONDS)
        return self._known

    def _answer(self, path: str, read: Callable[[transport.Object], Read]) -> Read | None:
        """Return what ``read`` finds in the answer, or None where there is none; only the first failure in a row is a warning."""
        try:
            return read(self._api.request("GET", path))
        except fields.UNREADABLE as error:
            log = _log.warning if self._pause == FIRST_PAUSE else _log.debug
            log("API server description failed", path=path, error=str(error), retry_in_s=self._pause)
            return None
