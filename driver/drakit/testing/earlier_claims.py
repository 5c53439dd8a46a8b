"""Claims that an earlier release of a driver journaled, as an author keeps them: files that ``journal show UID -o json`` wrote."""

import dataclasses
import json
import pathlib

from drakit.core import claim as claims
from drakit.core import errors, lifecycle
from drakit.journal import inspection


def read(file: pathlib.Path, *, pool: str) -> lifecycle.Entry:
    """Return the prepared claim of a file, moved to a node whose own pool is ``pool``. Raises ConfigError."""
    try:
        entry = inspection.entry_of(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, errors.ConfigError) as error:
        raise errors.ConfigError(f"{file}: {error}; write it with: journal show UID -o json") from error
    if entry.state is not lifecycle.State.PREPARED or not entry.grants:
        raise errors.ConfigError(f"{file}: the claim is {entry.state.value}; record one that is prepared")
    grants = tuple(dataclasses.replace(grant, pool=grant.device.pool_on(pool)) for grant in entry.grants)
    keys = [grant.key for grant in grants]
    for number, grant in enumerate(grants):
        if grant.key in keys[:number]:
            raise errors.ConfigError(f"{file}: grants[{number}] repeats {grant.device.name} of the request {grant.request}; remove it")
    return dataclasses.replace(entry, grants=grants)


def allocated(entry: lifecycle.Entry, driver: str) -> claims.Claim:
    """Return the claim of an entry as the API server has it."""
    return claims.Claim(
        ref=entry.claim,
        results=tuple(
            claims.AllocationResult(
                request=grant.request,
                driver=driver,
                pool=grant.pool,
                device=grant.device.name,
                share_id=grant.share_id,
                consumed_capacity=grant.consumed_capacity,
                admin_access=grant.admin_access,
                binding_conditions=grant.device.binding_conditions,
                binding_failure_conditions=grant.device.binding_failure_conditions,
            )
            for grant in entry.grants
        ),
        configs=tuple(
            claims.OpaqueConfig(source=grant.config_source, driver=driver, parameters=grant.parameters, requests=(grant.request,))
            for grant in entry.grants
            if grant.parameters is not None and grant.config_source is not None
        ),
    )
