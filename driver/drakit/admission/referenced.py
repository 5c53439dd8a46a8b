"""Read the claims of a pod, their templates and their classes from the API server, for a review of the pod.

An object that does not exist, or that cannot be read in time, counts as unknown: the review then says nothing about it, and the pod is created.
"""

import itertools
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping

from drakit.admission import lenient_json, whole_objects
from drakit.core import errors, names
from drakit.kube import claim_codec, transport
from drakit.telemetry import logs

SECONDS = 2.0
"""The time for all reads of one review. The API server waits 3 s for the answer (timeoutSeconds of the configuration)."""
CLAIMS_MAX, CLASSES_MAX = 16, 64
_RESOURCES = {
    whole_objects.CLAIM: "resourceclaims",
    whole_objects.TEMPLATE: "resourceclaimtemplates",
    whole_objects.CLASS: "deviceclasses",
}
_NOT_FOUND = 404

_log = logs.get_logger(__name__)


class Referenced:
    """Reads objects by ``api``, within a time limit for each review."""

    def __init__(self, api: transport.Transport, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now

    def by(self, claims: Mapping[str, whole_objects.Reference]) -> whole_objects.Known:
        """Return the claims and templates of a pod, and the classes of these, as far as they are known."""
        deadline = self._now() + SECONDS
        known = self._read(itertools.islice(dict.fromkeys(claims.values()), CLAIMS_MAX), deadline)
        classes = [found for (kind, _, _), obj in known.items() for found in whole_objects.classes_of(kind, obj)]
        return {**known, **self._read(itertools.islice(dict.fromkeys(classes), CLASSES_MAX), deadline)}

    def _read(self, references: Iterable[whole_objects.Reference], deadline: float) -> dict[whole_objects.Reference, lenient_json.Object]:
        found: dict[whole_objects.Reference, lenient_json.Object] = {}
        for reference in references:
            seconds, (kind, namespace, name) = deadline - self._now(), reference
            if seconds <= 0 or not names.is_subdomain(name) or not (kind == whole_objects.CLASS or names.is_label(namespace)):
                continue
            place = f"namespaces/{namespace}/{_RESOURCES[kind]}" if namespace else _RESOURCES[kind]
            path = f"/apis/{claim_codec.API_VERSION}/{place}/{urllib.parse.quote(name)}"
            try:
                found[reference] = self._api.request("GET", path, timeout=seconds)
            except errors.ApiError as error:
                if error.status != _NOT_FOUND:
                    _log.warning("object of a pod unreadable", object=f"{kind} {namespace}/{name}", error=str(error))
        return found
