"""Allocated claims from a file, so that a device can be prepared with no API server: the local mode.

The file is YAML or JSON with one or more ResourceClaims (documents, or a List), each with a status.allocation as the scheduler would write it.
The checks are those made of a claim from the API server.
"""

import pathlib
from collections.abc import Iterator

import yaml

from drakit.core import claim as claims
from drakit.core import errors, records
from drakit.kube import claim_codec, fields, transport

SIZE_MAX = 4 << 20


class FileClaims:
    """``core.ports.ClaimSource`` over the claims of one file, read once; raises ConfigError naming the field when it cannot be read."""

    def __init__(self, path: pathlib.Path) -> None:
        self._claims: dict[tuple[str, str], transport.Object] = {}
        self._refs: dict[tuple[str, str], claims.ClaimRef] = {}
        for found in _claims_in(path):
            ref = claim_codec.ref_of(found)
            if (ref.namespace, ref.name) in self._refs:
                raise found.error(f"the claim {ref} is in the file twice")
            self._refs[ref.namespace, ref.name] = ref
            self._claims[ref.namespace, ref.name] = found.object()
        if not self._refs:
            raise errors.ConfigError("holds no ResourceClaim", field=path.name)

    @property
    def refs(self) -> tuple[claims.ClaimRef, ...]:
        """The claims of the file, in its order."""
        return tuple(self._refs.values())

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """The claim of that namespace and name; raises ClaimError."""
        found = self._claims.get((ref.namespace, ref.name))
        if found is None:
            raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim is not in the file")
        return claim_codec.decode(found, ref)


class _JsonLikeLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it, by way of JSON: what looks like a date stays text."""


_JsonLikeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _claims_in(path: pathlib.Path) -> Iterator[fields.Field]:
    for index, document in enumerate(_documents(path)):
        found = fields.Field(document, f"{path.name}[{index}]")
        if not found:
            continue
        items = found["items"].each() if found["kind"].text() in ("List", "ResourceClaimList") else [found]
        for item in items:
            item["apiVersion"].only_in(claim_codec.API_VERSION)
            item["kind"].only_in(claim_codec.KIND)
            yield item


def _documents(path: pathlib.Path) -> list[records.Json]:
    try:
        text = path.read_bytes()
        if len(text) > SIZE_MAX:
            raise errors.ConfigError(f"has {len(text)} bytes, more than {SIZE_MAX}", field=path.name)
        return list(yaml.load_all(text, Loader=_JsonLikeLoader))
    except OSError as error:
        raise errors.ConfigError(f"cannot be read: {error.strerror}", field=str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise errors.ConfigError(f"is neither YAML nor JSON: {' '.join(str(error).split())[:200]}", field=path.name) from error
