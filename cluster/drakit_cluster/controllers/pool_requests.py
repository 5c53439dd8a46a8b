"""Answers ResourcePoolStatusRequests once, as soon as the pools are complete, and deletes them: answered ones after an hour, others after a day."""

import contextlib
import datetime
from collections.abc import Callable

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.api import Api
from drakit_cluster.controllers import pool_counts
from drakit_cluster.objects import errors, json_types, moments
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POOL_STATUS_REQUEST, SLICE, TAINT_RULE

ANSWERED_FOR = datetime.timedelta(hours=1)
WAITING_FOR = datetime.timedelta(days=1)


class PoolCounter:
    """``with_rules`` says whether DeviceTaintRules make devices unavailable."""

    def __init__(self, api: Api, *, with_rules: bool, now: Callable[[], datetime.datetime] = moments.present) -> None:
        self._api = api
        self._with_rules = with_rules
        self._now = now
        self._ends: dict[Key, datetime.datetime] = {}
        self.waiting: set[Key] = set()
        """Requests for pools that are incomplete."""

    def check(self, key: Key) -> None:
        """Answer a request that has no answer yet, and note when it ends. Raise ApiError."""
        self.waiting.discard(key)
        self._ends.pop(key, None)
        try:
            request = self._api.get(POOL_STATUS_REQUEST, key.name)
        except errors.NotFoundError:
            return
        if "status" not in request and not self._answer(request):
            self.waiting.add(key)
        self._ends[key] = _end(request)

    def act(self) -> float | None:
        """Delete the requests that have ended. Return after how many seconds the next one does, None where there is none. Raise ApiError."""
        present = self._now()
        for key in [key for key, end in self._ends.items() if end <= present]:
            with contextlib.suppress(errors.NotFoundError):
                self._api.delete(POOL_STATUS_REQUEST, key.name)
            del self._ends[key]
            self.waiting.discard(key)
        return min(((end - present).total_seconds() for end in self._ends.values()), default=None)

    def _answer(self, request: Object) -> bool:
        rules = self._api.list(TAINT_RULE).items if self._with_rules else []
        status = pool_counts.status(request, self._api.list(SLICE).items, self._api.list(CLAIM).items, rules)
        if status is None:
            return False
        request["status"] = status
        self._api.update(POOL_STATUS_REQUEST, request, subresource="status")
        return True


def _end(request: Object) -> datetime.datetime:
    """Return when a request is to be deleted."""
    created = json_types.text(request, "metadata", "creationTimestamp")
    if "status" not in request:
        return datetime.datetime.fromisoformat(created) + WAITING_FOR
    answered = json_types.text(request, "status", "conditions", 0, "lastTransitionTime")
    return datetime.datetime.fromisoformat(answered or created) + ANSWERED_FOR
