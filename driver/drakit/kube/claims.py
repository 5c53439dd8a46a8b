"""Allocated claims from the API server."""

import http

from drakit.core import claim as claims
from drakit.core import errors
from drakit.kube import claim_codec, transport

TIMEOUT = 10.0


class ApiClaims:
    """``core.ports.ClaimSource``: every fetch asks the server, because the claim may have been replaced a moment ago."""

    def __init__(self, api: transport.Transport) -> None:
        self._api = api

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """The claim as it is now; raises ClaimError or ApiError."""
        try:
            found = self._api.request("GET", path(ref), timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim does not exist any more") from error
            raise
        return claim_codec.decode(found, ref)


def path(ref: claims.ClaimRef) -> str:
    """Path of a claim in the API; the names were checked when the reference was made."""
    return f"/apis/{claim_codec.API_VERSION}/namespaces/{ref.namespace}/resourceclaims/{ref.name}"
