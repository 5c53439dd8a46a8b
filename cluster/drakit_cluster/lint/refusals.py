"""Findings for what the API server refuses or drops, each with a fix that uses the names and values of the object.

A fix depends on the field, the message and the object. Without a special fix, the message itself becomes the fix.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from drakit import units
from drakit_cluster.lint import expressions, findings, unknown_fields
from drakit_cluster.lint.findings import Finding
from drakit_cluster.lint.mistake import Mistake
from drakit_cluster.manifests import Dropped, Problem
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9])")
_NOT_LABEL = re.compile(r"[^a-z0-9-]+")
_SHORT_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_LISTS = frozenset({"bools", "ints", "strings", "versions"})
_ONE_VALUE = "bool, int, string or version"
_NO_SOURCE = "exactly one of resourceClaimName"
_NO_RESOURCE = (
    "write cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME; devices are requested in claims, beside limits and requests"
)
_WANTED = re.compile(r"want (.*?), got ", re.DOTALL)
_SHOWN_MAX = 80
_MIXINS = (("consumesCounters", "deviceCounterConsumption"), ("sharedCounters", "counterSet"), ("devices", "device"))


def check(problems: Iterable[Problem]) -> Iterator[Finding]:
    """Yield a finding for every problem. A claim's entry whose name is in the unknown field ``source`` is one mistake, not two."""
    problems = list(problems)
    moved = {problem.field.removesuffix(".source") for problem in problems if problem.text == "unknown field"}
    for problem in problems:
        if problem.field in moved and _NO_SOURCE in problem.text:
            continue
        is_unknown_field = problem.text == "unknown field"
        fix = unknown_fields.fix(problem) if is_unknown_field else of_refusal(problem)
        yield findings.error(problem.document, problem.field, text_of(problem), fix)


def text_of(problem: Problem) -> str:
    """Return what the server says, without the excerpts of an expression below its errors."""
    return problem.text.partition("\n | ")[0]


def dropped(fields: Iterable[Dropped]) -> Iterator[Finding]:
    """Yield a warning for each field or object that the server drops: its version does not have it, or a gate is off."""
    for place in fields:
        more = f" and {place.count - 1} more of its kind" if place.count > 1 else ""
        what = "drops this field" if place.field else "does not serve this kind"
        if place.gate is None:
            fix = "use a Kubernetes that has it, or remove it: kubectl refuses it, and the server drops it from other clients"
        else:
            fix = f"enable the gate in the cluster and lint with --gate {place.gate}=true, or remove the {'field' if place.field else 'object'}"
        yield findings.warning(place.document, place.field or "kind", f"the API server {what}{more}, because {place.why}", fix)


def _served(mistake: Mistake) -> str:
    return f"write {mistake.problem.text.rpartition(': write ')[2]}, and check the fields that it renamed"


def _attribute(mistake: Mistake) -> str:
    return f"write DOMAIN/{mistake.value}; DOMAIN is the driver's name, unless the attribute is published with another domain"


def _label(mistake: Mistake) -> str:
    return f"write {_as_label(mistake.value) or 'a name'}"


def _subdomain(mistake: Mistake) -> str:
    return f"write {'.'.join(filter(None, map(_as_label, mistake.value.split('.')))) or 'a name'}"


def _as_label(name: str) -> str:
    words = name if name.islower() else _CAMEL.sub("-", name)
    return _NOT_LABEL.sub("-", words.lower()).strip("-")


def _identifier(mistake: Mistake) -> str:
    first, *rest = (part for part in re.split(r"\W+", mistake.value) if part) if re.search(r"\w", mistake.value) else ("name",)
    identifier = first + "".join(part[:1].upper() + part[1:] for part in rest)
    return f"write {f'_{identifier}' if identifier[:1].isdigit() else identifier}"


def _version(mistake: Mistake) -> str:
    if match := _SHORT_VERSION.fullmatch(mistake.value):
        return f'write "{".".join(str(int(part or 0)) for part in match.groups())}"'
    return "write three numbers, such as 1.2.3, or use string instead of version"


def _mixin(mistake: Mistake) -> str:
    kind = next((kind for within, kind in _MIXINS if within in mistake.field), "device")
    mixin_names = [json_types.text(mixin, "name") for mixin in json_types.objects(mistake.body, "spec", "mixins", kind)]
    if not mixin_names:
        return f"define it in spec.mixins.{kind}"
    return f"{findings.suggestion(mistake.value, mixin_names)} (in spec.mixins.{kind})"


def _one_kind(mistake: Mistake) -> str:
    if "remove one" in mistake.detail:
        return "keep exactly or firstAvailable, and remove the other"
    if "deviceClassName" in json_types.mapping(mistake.written):
        return "move deviceClassName and the fields beside it to exactly"
    return "write exactly: {deviceClassName: NAME}, or a list of alternatives in firstAvailable"


def _one_value(mistake: Mistake) -> str:
    gate, written = Gate.LIST_TYPE_ATTRIBUTES.value, mistake.written
    if isinstance(written, dict) and len(written) == 1 and not _LISTS.isdisjoint(written):
        return f"a list needs the feature gate {gate}: enable it in the cluster and lint with --gate {gate}=true, or write one value: {_ONE_VALUE}"
    return f"write one value: {_ONE_VALUE}, or, with the feature gate {gate}, one list: bools, ints, strings or versions"


def _amount(mistake: Mistake) -> str:
    return f"write {{value: {json.dumps(str(mistake.written))}}}"


def _supported(mistake: Mistake) -> str:
    allowed = re.findall(r'"([^"]+)"', mistake.detail) or mistake.detail.removeprefix("use one of ").split(", ")
    return one_of(mistake.value, allowed)


def one_of(value: str, allowed: Sequence[str]) -> str:
    """Return the word to write: the one that differs only in case, a similar one, or all allowed words."""
    same = [word for word in allowed if word.lower() == value.lower()]
    return f"write {same[0]}" if same else findings.suggestion(value, allowed).replace("known are", "write one of")


def _claim_entry(mistake: Mistake) -> str:
    path = mistake.detail.removeprefix("must be one of ")
    known = [json_types.text(entry, "name") for entry in json_types.objects(mistake.at(path))]
    missing = f"add {{name: {mistake.value}, resourceClaimTemplateName: NAME}} to {path}"
    return findings.suggestion(mistake.value, known) if known else missing


def _pod_claim(mistake: Mistake) -> str:
    both = len(json_types.mapping(mistake.written)) > 2
    return "keep one of them" if both else "add resourceClaimName: NAME, or resourceClaimTemplateName: NAME"


def _above_limit(mistake: Mistake) -> str:
    name, _, limit = mistake.detail.partition(" to ")[2].partition(" limit of ")
    return f"remove {name} from requests: a request is then as large as the limit, {limit}"


def _limit(mistake: Mistake) -> str:
    return f"write at most {mistake.detail.rpartition(' of ')[2]}, or raise the value of the capacity"


def _expression(mistake: Mistake) -> str:
    return expressions.fix(str(mistake.written), mistake.problem.text)


def _quantity(mistake: Mistake) -> str:
    return units.without_unit(str(mistake.written)) or "write a number with an optional suffix, such as 40Gi, 500m or 5G"


def _form(mistake: Mistake) -> str:
    """Return the right form of a value of a wrong type."""
    wanted, value = _WANTED.findall(mistake.problem.text)[0], mistake.written
    if wanted == "a list":
        return f"write a list: {_json([value])}"
    if wanted == "an object":
        return _object_form(value, unknown_fields.known_fields(mistake.problem, mistake.field))
    if wanted == "a string":
        return f"put quotes around it: {_json(_json(value))}" if isinstance(value, int | float) else "write text"
    is_number = isinstance(value, str) and value.lstrip("-").isdigit()
    number = f"remove the quotes: {value}" if is_number else "write a whole number"
    return number if wanted == "a 64-bit integer" else f"write {wanted}, without quotes"


def _object_form(value: Json, names: Sequence[str]) -> str:
    known = f"; its fields are {', '.join(names)}" if len(names) > 1 else ""
    name = names[0] if len(names) == 1 else "name" if "name" in names and isinstance(value, str) else ""
    if isinstance(value, list):
        return f"write one object, not a list{known}"
    return f"write an object: {{{name}: {_json(value)}}}{known}" if name else f"write an object{known}"


def _json(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _required(mistake: Mistake) -> str:
    detail, name = mistake.detail, mistake.field.rpartition(".")[2]
    if not detail:
        return f"add {name}"
    if detail.startswith("one of "):
        return f"write {detail}"
    return detail if detail.startswith(("write", "name")) else f"add {name}: {detail}"


def _labels(mistake: Mistake) -> str:
    required = json_types.mapping(mistake.at("spec.selector.matchLabels"))
    return f"write the labels of spec.selector.matchLabels: {json.dumps(required)}"


_TABLE: tuple[tuple[str, str, str | Callable[[Mistake], str]], ...] = (
    (r"apiVersion", r"", _served),
    (r"spec\.template\.metadata\.labels", r"does not match", _labels),
    (r".*\.restartPolicy", r"^Required value", "write restartPolicy: Never or restartPolicy: OnFailure"),
    (r".*\.restartPolicy", r'values: "Always"$', "remove it: the pods run until they are deleted; write a Job for pods that end"),
    (r".*\.exactly", r"want an object", "write one object; for a list of alternatives write firstAvailable"),
    (r".*\.(capacity|counters)\[[^\]]*\]", r"want an object", _amount),
    (r".*\.requests\[\d+\]", r"exactly one of", _one_kind),
    (r".*\.resourceClaims\[\d+\]", rf"{_NO_SOURCE}", _pod_claim),
    (r".*\.resources\.claims\[\d+\]\.name", r"must be one of", _claim_entry),
    (r".*\.requests\[\d+\]", r"request in the claim", "write the name of a request of this claim, or request/subrequest"),
    (r".*\.resources\.(limits|requests)\[claims\]", r"want a quantity", "write claims beside limits and requests, not in them"),
    (r".*\.resources\.(limits|requests)\[[^\]]*\]", r"must be a standard resource", _NO_RESOURCE),
    (r".*\.resources\.(limits|requests)\[[^\]]*\]", r"must be an integer", "write a whole number: an extended resource has no parts"),
    (r".*\.resources\.requests", r"must be (equal|less)", _above_limit),
    (r".*\.count", r'allocationMode is "All"', "remove count, or write allocationMode: ExactCount"),
    (r".*\.constraints\[\d+\]", r"either", "write matchAttribute or distinctAttribute: DOMAIN/NAME"),
    (r".*\.adminAccess", r"^(?!want )", "label the Namespace resource.kubernetes.io/admin-access=true, or remove it"),
    (r".*\.cel\.expression", r"may cost", "use fewer or smaller loops"),
    (r".*\.cel\.expression", r"", _expression),
    (r".*", r"want a quantity", _quantity),
    (
        r".*",
        r"want a string, got (True|False)$",
        "put quotes around it: YAML reads yes, no, on and off as booleans, and kubectl y and n too",
    ),
    (r".*", r"^want ", _form),
    (r"spec", r"sharedCounters", "move sharedCounters to a separate slice of the same pool, and count both slices in resourceSliceCount"),
    (r".*", r"write domain/name", _attribute),
    (r".*", r"must be lower-case letters, digits and '-'", _label),
    (r".*", r"must be lower-case letters, digits, '-' and '.'", _subdomain),
    (r".*", r"must be a C identifier", _identifier),
    (r".*", r"must be a version like", _version),
    (r".*", r"must name a mixin", _mixin),
    (r".*", r"exactly one value must be", _one_value),
    (r".*", r"one of nodeName, nodeSelector, allNodes", "write one of nodeName: NAME, nodeSelector, and allNodes: true"),
    (r".*\.nodeSelectorTerms", r"exactly one", "write one term; all its expressions must hold"),
    (r".*\.requestPolicy", r"allowMultipleAllocations", "add allowMultipleAllocations: true to the device, or remove requestPolicy"),
    (r".*", r"must not exceed the capacity's value", _limit),
    (r".*", r"(supported values|use one of)", _supported),
    (r".*", r"and at most \S+, the capacity's value$", lambda mistake: f"write at most {mistake.detail.split()[-4].rstrip(',')}"),
    (r".*", r"already exists", "give each a different name, or remove one"),
    (r".*\.name", r"Duplicate", "give each a different name"),
    (r".*", r"^(Forbidden|Duplicate)", "remove it"),
    (r".*", r"^Too many", lambda mistake: f"keep at most {re.findall(r'[0-9]+', mistake.problem.text)[-1]}"),
    (r".*", r"^Too long", "shorten it"),
    (r"metadata\.name", r"^Required value", "add metadata: {name: NAME}"),
    (r".*", r"^Required value", _required),
)
_COMPILED = [(re.compile(field), re.compile(text), fix) for field, text, fix in _TABLE]


def of_refusal(problem: Problem) -> str:
    """Return the fix for a refusal of the server."""
    mistake = Mistake(problem=problem)
    for field, text, fix in _COMPILED:
        if field.fullmatch(problem.field) and text.search(problem.text):
            return fix if isinstance(fix, str) else fix(mistake)
    detail = mistake.detail
    return f"change it: it {detail}" if detail.startswith(("must", "may")) else f"change it: {detail}"
