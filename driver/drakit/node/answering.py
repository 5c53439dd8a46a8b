"""What a prepared claim's grants are, once the author has said it, and what the kubelet is told of them. Pure."""

import dataclasses
from collections.abc import Callable, Sequence

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import lifecycle, outcome
from drakit.node import resolution

Around = Callable[[Callable[[], outcome.Outcome]], outcome.Outcome]


def plainly(work: Callable[[], outcome.Outcome]) -> outcome.Outcome:
    """Call the work of a claim and do nothing else."""
    return work()


def filled(begun: Sequence[lifecycle.GrantEntry], prepared: Sequence[drivers.Prepared]) -> tuple[lifecycle.GrantEntry, ...]:
    """Grants as they were begun, each with what its author's ``prepare`` returned; raises TypeError where that is no Prepared."""
    for made in prepared:
        if not isinstance(made, drivers.Prepared):
            raise TypeError(f"prepare() returned {type(made).__name__}; return drakit.Prepared(edits=drakit.Edits(...))")
    return tuple(dataclasses.replace(one, record=made.record, edits=made.edits) for one, made in zip(begun, prepared, strict=True))


def answer(driver: str, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> outcome.Outcome:
    """The devices of a prepared claim in the order of its grants; a grant without edits has no CDI id."""
    return outcome.Outcome(
        devices=tuple(
            outcome.PreparedDevice(
                request=kept.request.partition("/")[0],
                pool=kept.pool,
                device=kept.device.name,
                cdi_ids=(resolution.cdi_name(driver, ref, kept).qualified,) if kept.edits else (),
                share_id=kept.share_id,
            )
            for kept in grants
        )
    )
