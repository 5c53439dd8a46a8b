"""Checks of NodePrepareResources and NodeUnprepareResources, one function for each.

A check raises AssertionError if the kubelet or a container would fail, and AdviceError if the kubelet only retries more often than necessary. It
unprepares the claims that it prepares.
"""

import contextlib
import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures

from drakit.testing import parts
from drakit.testing import report as reports
from drakit_cluster.kubelet.plugins.endpoint import Answer, CallError, ClaimId, Endpoint
from drakit_tools.conformance import claims as claim_of
from drakit_tools.conformance import containers
from drakit_tools.conformance.claims import Claim

Answers = Mapping[str, Answer]
View = frozenset[tuple[object, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """A driver's service, and claims to test it; ``cdi`` is the folder of its CDI files.

    ``timings`` collects how long the calls take. ``defined`` are the CDI devices that existed before the first call.
    """

    service: Endpoint
    claims: tuple[Claim, ...]
    cdi: pathlib.Path | None
    timings: "Timings"
    defined: frozenset[str]

    def need(self, count: int = 1) -> Sequence[Claim]:
        """Return the claims; raises NotApplicableError where there are fewer."""
        if len(self.claims) < count:
            missing = "no claim was given" if not self.claims else "one claim was given, and this needs two"
            raise reports.NotApplicableError(f"{missing}; give --claim or --class")
        return self.claims

    def prepare(self, *wanted: ClaimId) -> Answers:
        """Prepare a batch; raises AssertionError unless every claim, and no other, is answered."""
        return _complete(wanted, self._call(self.service.prepare, wanted), "NodePrepareResources")

    def unprepare(self, *wanted: ClaimId) -> None:
        """Unprepare a batch; raises AssertionError unless it succeeds for all."""
        answers = _complete(wanted, self._call(self.service.unprepare, wanted), "NodeUnprepareResources")
        for claim_id in wanted:
            error = answers[claim_id.uid].error
            require(not error, f"NodeUnprepareResources fails for {claim_id.namespace}/{claim_id.name}: {error}")

    def prepared(self, *wanted: Claim) -> Answers:
        """Prepare claims that must succeed; raises AssertionError where an answer does not fit its claim."""
        answers = self.prepare(*(claim.id for claim in wanted))
        wrong = [text for claim in wanted for text in claim_of.mistakes(claim, answers[claim.id.uid])]
        require(not wrong, "; ".join(wrong))
        return answers

    def _call(self, call: Callable[[Sequence[ClaimId]], Answers], wanted: Sequence[ClaimId]) -> Answers:
        began = time.monotonic()
        try:
            return call(wanted)
        except CallError as error:
            raise AssertionError(f"{error} (a failed call fails every claim of it)") from error
        finally:
            self.timings.seconds.append(time.monotonic() - began)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timings:
    """The durations of the calls so far. A call that takes longer than ``slow`` seconds is worth a warning."""

    slow: float
    seconds: list[float] = dataclasses.field(default_factory=list)


def require(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition holds."""
    if not condition:
        raise AssertionError(message)


@contextlib.contextmanager
def cleaned(bench: Bench) -> Iterator[None]:
    """Unprepare all claims afterwards. A failed call is ignored."""
    try:
        yield
    finally:
        with contextlib.suppress(CallError):
            bench.service.unprepare([claim.id for claim in bench.claims])


def view(answer: Answer) -> View:
    """Return an answer without the order of its devices, which has no meaning."""
    return frozenset((device.requests, device.pool, device.device, device.cdi_ids, device.share_id) for device in answer.devices)


def require_same(claim: Claim, before: Answer, after: Answer, when: str) -> None:
    """Raise AssertionError unless both answers give a container the same devices."""
    if view(before) != view(after):
        raise AssertionError(f"{claim}: {when} the answer is {_ids(after)}, and it was {_ids(before)}")


def _ids(answer: Answer) -> str:
    return ", ".join(f"{device.device} ({' '.join(device.cdi_ids) or 'no CDI id'})" for device in answer.devices) or "no device"


def _complete(wanted: Sequence[ClaimId], answers: Answers, call: str) -> Answers:
    missing = [f"{claim_id.namespace}/{claim_id.name}" for claim_id in wanted if claim_id.uid not in answers]
    require(not missing, f"{call} leaves out {', '.join(missing)} of {len(wanted)} claims; the kubelet fails the pod")
    extra = answers.keys() - {claim_id.uid for claim_id in wanted}
    require(not extra, f"{call} answers for claim UID {', '.join(sorted(extra))}, which was not asked for; the kubelet fails the pod")
    return answers


def _rejects(bench: Bench, wanted: ClaimId, text: str) -> None:
    """Require that prepare fails for this claim, and only for this claim."""
    try:
        answers = bench.service.prepare([wanted])
    except CallError as error:
        raise reports.AdviceError(
            f"the call fails ({error}); answer with an error for the claim, so that others of the call go on"
        ) from error
    answer = _complete([wanted], answers, "NodePrepareResources")[wanted.uid]
    if not answer.error:
        with contextlib.suppress(CallError):
            bench.service.unprepare([wanted])
        raise AssertionError(f"{text} is answered without an error, with {_ids(answer)}")


def _rejects_unknown(bench: Bench) -> None:
    _rejects(bench, claim_of.unknown(), "a claim that does not exist")


def _rejects_replaced(bench: Bench) -> None:
    (claim, *_) = bench.need()
    _rejects(bench, claim.replaced(), f"claim {claim} with another UID, as after it was deleted and created again,")


def _unprepares_unknown(bench: Bench) -> None:
    first, second = claim_of.unknown(), claim_of.unknown()
    bench.unprepare(first)
    bench.unprepare(first, second)


def _prepares(bench: Bench) -> None:
    claims = bench.need()
    with cleaned(bench):
        answers = bench.prepared(*claims)
        missing = [f"{claim}: {', '.join(lacks)}" for claim in claims if (lacks := claim_of.left_out(claim, answers[claim.id.uid]))]
        if missing:
            raise reports.AdviceError(f"the answer lacks devices that the claim was given, so no container gets them: {'; '.join(missing)}")
        for claim in claims:
            unnamed = [device.device for device in answers[claim.id.uid].devices if not device.requests]
            if unnamed and len({result.request for result in claim.results}) > 1:
                raise reports.AdviceError(
                    f"{claim}: device {unnamed[0]} is answered without request names, so a container that lists another request gets it too"
                )


def _prepares_twice(bench: Bench) -> None:
    claims = bench.need()
    with cleaned(bench):
        first = bench.prepared(*claims)
        second = bench.prepared(*claims)
        for claim in claims:
            require_same(claim, first[claim.id.uid], second[claim.id.uid], "the second time")


def _prepares_in_any_batch(bench: Bench) -> None:
    claims = bench.need(2)
    with cleaned(bench):
        together = bench.prepared(*claims)
        again = bench.prepared(*reversed(claims))
        for claim in claims:
            alone = bench.prepared(claim)
            require_same(claim, together[claim.id.uid], alone[claim.id.uid], "asked for alone")
            require_same(claim, together[claim.id.uid], again[claim.id.uid], "in a call of another order")
    with cleaned(bench):
        for claim in claims:
            bench.prepared(claim)


def _prepares_at_once(bench: Bench) -> None:
    (claim, *_) = bench.need()
    with cleaned(bench), futures.ThreadPoolExecutor(max_workers=2) as pool:
        calls = [pool.submit(bench.prepared, claim) for _ in range(2)]
        first, second = (call.result()[claim.id.uid] for call in calls)
        require_same(claim, first, second, "in one of two calls at once")


def _isolates_a_bad_claim(bench: Bench) -> None:
    (claim, *_) = bench.need()
    bad = claim_of.unknown()
    for order in ((claim.id, bad), (bad, claim.id)):
        with cleaned(bench):
            try:
                answers = bench.service.prepare(order)
            except CallError as error:
                text = f"one claim that does not exist fails the whole call ({error}); answer with an error for that claim"
                raise reports.AdviceError(text) from error
            _complete(order, answers, "NodePrepareResources")
            wrong = claim_of.mistakes(claim, answers[claim.id.uid])
            require(not wrong, f"beside a claim that does not exist, {'; '.join(wrong)}")
            require(answers[bad.uid].error, "a claim that does not exist is answered without an error in a call with another")


def _gives_valid_cdi_ids(bench: Bench) -> None:
    claims = bench.need()
    with cleaned(bench):
        answers = bench.prepared(*claims)
        containers.require_resolved(bench.cdi, [answers[claim.id.uid] for claim in claims])
    if bench.cdi is None:
        raise reports.NotApplicableError("the ids are well formed; whether files define them is not known without --cdi-dir")


def _host_has_all(bench: Bench) -> None:
    claims = bench.need()
    with cleaned(bench):
        answers = bench.prepared(*claims)
        for claim in claims:
            containers.require_on_host(_folder(bench), answers[claim.id.uid], str(claim))


def _devices_agree(bench: Bench) -> None:
    claims = bench.need()
    with cleaned(bench):
        answers = bench.prepared(*claims)
        devices = [(str(claim), device) for claim in claims for device in answers[claim.id.uid].devices]
        if len(devices) < 2:
            raise reports.NotApplicableError("the claims have one device together; give two claims")
        containers.require_one_value(_folder(bench), devices)


def _removes_its_files(bench: Bench) -> None:
    claims = bench.need()
    with cleaned(bench):
        answers = bench.prepared(*claims)
        bench.unprepare(*(claim.id for claim in claims))
        require_removed(bench, claims, answers, "after unprepare")


def _keeps_other_files(bench: Bench) -> None:
    claims = bench.need(2)
    for gone, kept in ((claims[0], claims[1]), (claims[1], claims[0])):
        with cleaned(bench):
            answers = bench.prepared(*claims)
            bench.unprepare(gone.id)
            try:
                containers.require_resolved(_folder(bench), [answers[kept.id.uid]])
            except AssertionError as error:
                raise AssertionError(f"unprepare of {gone} removed what a container of {kept} needs: {error}") from error


def require_removed(bench: Bench, claims: Sequence[Claim], answers: Answers, when: str) -> None:
    """Raise AssertionError if CDI files still define devices of these claims. Devices that always existed do not count."""
    folder = _folder(bench)
    for claim in claims:
        ids = {name for device in answers[claim.id.uid].devices for name in device.cdi_ids}
        left = sorted(ids & containers.defined(folder) - bench.defined)
        require(not left, f"{claim}: {when} a CDI file in {folder} still defines {', '.join(left)}; every unprepared claim leaves one")


def gives_each_part_once(patterns: Sequence[str], bench: Bench) -> None:
    """Raise AssertionError if two claims get the same part at once, by the variables and device nodes that the patterns name."""
    claims = bench.need(2)
    folder = _folder(bench)
    with cleaned(bench):
        answers = bench.prepared(*claims)
        given = {claim: list(containers.parts_of(folder, patterns, answers[claim.id.uid])) for claim in claims}
    named = {part.pattern for of_claim in given.values() for part in of_claim}
    for pattern in patterns:
        require(pattern in named, f"--exclusive {pattern}: no container gets a variable or device node of this name; correct the pattern")
    for first, second in itertools.combinations(claims, 2):
        if twice := parts.given_twice(given[first], given[second]):
            raise AssertionError(f"{twice[0]} of {first} and {twice[1]} of {second} are the same part, and only one claim may have it")


def _answers_soon(bench: Bench) -> None:
    slowest = max(bench.timings.seconds, default=0.0)
    if slowest > bench.timings.slow:
        raise reports.AdviceError(
            f"the slowest of {len(bench.timings.seconds)} calls took {slowest:.1f} s, over {bench.timings.slow:g} s: each pod starts that much "
            "later, and the kubelet ends a call after 45 s"
        )


def _folder(bench: Bench) -> pathlib.Path:
    """Return the folder of CDI files; raises NotApplicableError without one."""
    if bench.cdi is None:
        raise reports.NotApplicableError("what containers get is not known without --cdi-dir")
    return bench.cdi


def _unprepares(bench: Bench) -> None:
    claims = [claim.id for claim in bench.need()]
    with cleaned(bench):
        bench.prepared(*bench.claims)
        bench.unprepare(*claims)
        bench.unprepare(*claims, claim_of.unknown())
        bench.prepared(*bench.claims)
        for claim in claims:
            bench.unprepare(claim)


ALL: Mapping[str, Callable[[Bench], None]] = {
    "unprepare of unknown claims succeeds, alone, together and twice": _unprepares_unknown,
    "prepare of an unknown claim returns an error for that claim": _rejects_unknown,
    "prepare returns the allocated devices of every claim": _prepares,
    "prepare of a prepared claim returns the same result": _prepares_twice,
    "prepare returns the same result in any batch": _prepares_in_any_batch,
    "two concurrent calls for one claim return the same result": _prepares_at_once,
    "an invalid claim does not fail the others of its call": _isolates_a_bad_claim,
    "a claim that was replaced is rejected": _rejects_replaced,
    "CDI ids are well formed, and valid files define them": _gives_valid_cdi_ids,
    "the host has the device nodes, mounts and hooks of the CDI files": _host_has_all,
    "two devices in one container agree on every variable": _devices_agree,
    "unprepare succeeds, also twice, and prepare works again": _unprepares,
    "unprepare removes the CDI files of its claim": _removes_its_files,
    "unprepare keeps the CDI files of other claims": _keeps_other_files,
    "calls answer soon": _answers_soon,
}
