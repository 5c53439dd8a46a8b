"""docs/reference/kubernetes-versions.md shows the table of versions, and what they say of the files here; UPDATE_GOLDEN=1 writes it anew."""

import json
import os
import pathlib
from collections.abc import Iterator

import httpx
import yaml

from drakit_cluster.api import apiserver, registry, tls
from drakit_cluster.objects import resources, versions
from drakit_cluster.objects.features import FeatureGates
from fakes import command_line

FOLDER = pathlib.Path(__file__).parent / "kubernetes_versions"
PAGE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "kubernetes-versions.md"
BEGIN, END = "<!-- tables: written by a test -->\n", "<!-- end of tables -->\n"


def row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table(title: str, first: str, rows: Iterator[tuple[str, list[str]]]) -> Iterator[str]:
    """Yield a table with a column for each version."""
    yield f"### {title}\n"
    yield row(first, *versions.ALL)
    yield f"|{' --- |' * (len(versions.ALL) + 1)}"
    yield from (row(name, *cells) for name, cells in rows)
    yield ""


def gates() -> Iterator[tuple[str, list[str]]]:
    """Yield the stage of each gate in each version; bold where it is on by default."""
    for gate in versions.GATES:
        stages = [versions.stage(gate, version) for version in versions.ALL]
        if any(stages):
            yield f"`{gate}`", ["" if stage is None else f"**{stage.name}**" if stage.on else stage.name for stage in stages]


def served() -> Iterator[tuple[str, list[str]]]:
    """Yield the API versions of each kind; bold where they are on by default."""
    for kind in versions.SERVED:
        each = [versions.api_versions(kind, version) for version in versions.ALL]
        yield f"`{kind}`", [", ".join(f"**{name}**" if name == "v1" else name for name in names) for names in each]


def fields() -> Iterator[tuple[str, list[str]]]:
    """Yield the fields that not every version has."""
    for resource, spans in versions.FIELDS.items():
        for span, paths in spans.items():
            for path in paths.split() if span else ():
                yield f"{resource.kind} `{path}`", ["yes" if versions.within(span, version) else "" for version in versions.ALL]


def rules() -> Iterator[tuple[str, list[str]]]:
    """Yield the rules and limits that not every version has."""
    for rule, span in versions.RULES.items():
        yield rule.value, ["yes" if versions.within(span, version) else "" for version in versions.ALL]
    for name, label in (
        ("taints", "taints of a device, at most"),
        ("advanced_devices", "devices of a slice with taints, counters or lists, at most"),
        ("counter_sets", "counter sets of a slice, at most"),
        ("consumed_sets", "counter sets that a device draws from, at most"),
    ):
        yield label, [str(getattr(versions.limits(version), name)) for version in versions.ALL]


def gates_of(file: pathlib.Path) -> list[str]:
    """Return the gates that the first line of a file names."""
    first = file.read_text().partition("\n")[0]
    return first.removeprefix("# gates: ").split() if first.startswith("# gates: ") else []


def switched(version: str, names: list[str]) -> dict[str, bool]:
    """Return the gates among ``names`` that a version has, switched on."""
    return {name: True for name in names if versions.stage(name, version) is not None}


def options(version: str, names: list[str]) -> list[str]:
    """Return the options that choose a version with gates on."""
    return ["--kubernetes", version, *(word for name in switched(version, names) for word in ("--gate", f"{name}=true"))]


def linted(shell: command_line.CommandLine, file: pathlib.Path, names: list[str]) -> list[str]:
    """Return what lint says of a file for each version: from one run, or with gates on from one run for each."""
    if names:
        runs = [shell.run("lint", str(file), *options(version, names), "-o", "json") for version in versions.ALL]
    else:
        runs = [shell.run("lint", str(file), "--kubernetes", ",".join(versions.ALL), "-o", "json")]
    findings = [finding for ran in runs for finding in json.loads(ran.out)]
    cells = []
    for version in versions.ALL:
        concerned = [one for one in findings if version in one["kubernetes"]]
        places = [f"{'refuses' if one['severity'] == 'error' else 'warns of'} `{one['field']}`" for one in concerned]
        cells.append("<br>".join(dict.fromkeys(places)) or "accepts")
    return cells


def allocated(shell: command_line.CommandLine, file: pathlib.Path, version: str, names: list[str]) -> str:
    """Return what allocate decides for the claim of a file."""
    ran = shell.run("allocate", str(file), *options(version, names), "-o", "json")
    if not ran.out:
        return "bad input"
    (decision,) = json.loads(ran.out)["decisions"]
    if not decision["fits"]:
        return "Pending"
    results = decision["claims"][0]["allocation"]["devices"]["results"]
    return ", ".join(
        " ".join(
            [f"`{one['device']}`", *(f"{name.rpartition('/')[2]} {amount}" for name, amount in one.get("consumedCapacity", {}).items())]
        )
        for one in results
    )


def created(connection: httpx.Client, file: pathlib.Path) -> str:
    """Return what the API server of a version answers to ``kubectl create``, and to a client that does not check fields."""
    answers = []
    for body in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):
        plural = next(one.plural for one in resources.ALL if one.kind == body["kind"])
        prefix = f"/apis/{body['apiVersion']}" if "/" in body["apiVersion"] else f"/api/{body['apiVersion']}"
        namespaced = "/namespaces/default" if body["kind"] == "ResourceClaim" else ""
        strict = connection.post(f"{prefix}{namespaced}/{plural}", params={"fieldValidation": "Strict", "dryRun": "All"}, json=body)
        if strict.status_code != httpx.codes.CREATED:
            answers.append(f"{strict.status_code} for {body['kind']}")
        elif strict.json().get("spec", {}).keys() != body.get("spec", {}).keys() or dropped(body, strict.json()):
            answers.append(f"drops fields of {body['kind']}")
    return "<br>".join(dict.fromkeys(answers)) or "stores"


def dropped(sent: object, stored: object) -> bool:
    """Return whether a stored object lacks something that was sent."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return any(name not in stored or dropped(value, stored[name]) for name, value in sent.items())
    if isinstance(sent, list) and isinstance(stored, list):
        return len(sent) != len(stored) or any(map(dropped, sent, stored))
    return False


def on_clusters(cases: list[tuple[pathlib.Path, list[str]]]) -> list[list[str]]:
    """Return what a running API server of each version does with each file, with gates on."""
    cells: list[list[str]] = [[] for _ in cases]
    for version in versions.ALL:
        for names in {tuple(names) for _, names in cases}:
            with apiserver.ApiServer(registry.Registry(gates=FeatureGates.of(switched(version, [*names]), version))) as server:
                headers = {"authorization": f"Bearer {server.issue_token('tester', ('system:masters',))}"}
                verify = tls.client_context(server.ca_pem)
                with httpx.Client(base_url=server.url, verify=verify, headers=headers, trust_env=False) as connection:
                    assert connection.get("/version").json()["minor"] == version.partition(".")[2]
                    for place, (file, wanted) in enumerate(cases):
                        if tuple(wanted) == names:
                            cells[place].append(created(connection, file))
    return cells


def judged(shell: command_line.CommandLine) -> Iterator[tuple[str, list[str]]]:
    """Yield what the three commands say of each file in each version."""
    files = sorted(FOLDER.glob("*.yaml"))
    cases = [(file, names) for file in files for names in [[], *filter(None, [gates_of(file)])]]
    for (file, names), stored in zip(cases, on_clusters(cases), strict=True):
        yield f"**{file.stem}**{' with its gates' if names else ''} `lint`", linted(shell, file, names)
        yield "`allocate`", [allocated(shell, file, version, names) for version in versions.ALL]
        yield "`cluster`", stored


def tables(shell: command_line.CommandLine) -> str:
    """Return the tables of the page."""
    return "\n".join(
        [
            *table("One file set in every version", "File and command", judged(shell)),
            *table("Feature gates", "Gate", gates()),
            *table("API versions", "Kind", served()),
            *table("Fields", "Field", fields()),
            *table("Rules and limits", "Rule", rules()),
        ]
    )


def test_the_page_shows_what_each_version_does(shell: command_line.CommandLine) -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}\n{tables(shell)}\n{END}{after}"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(wanted, "utf-8")
    assert PAGE.read_text("utf-8") == wanted
