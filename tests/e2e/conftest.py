"""Options of the suite, the cluster it runs on, and the table at its end. ``docs/howto/test-on-a-cluster.md`` says how to use it."""

import contextlib
import os
import pathlib
import platform
import subprocess
from collections.abc import Generator, Iterator

import pytest

from drakit_cluster.objects import json_types
from e2e import driver as drivers
from e2e import gates as feature_gates
from e2e import table, workspace
from e2e.api import Api
from e2e.session import HOOKS, Hooks, Run

_ORDER = (
    "policy",
    "rights",
    "install",
    "samples",
    "containers",
    "partitions",
    "sharing",
    "claims",
    "status",
    "health",
    "binding",
    "kubelet",
    "nic",
    "updates",
    "life",
)

_PAUSE_SECONDS, _LOCAL_PAUSE_SECONDS = 0.25, 0.05


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with an environment variable as its default."""
    group = parser.getgroup("e2e", "the cluster under test")

    def add(name: str, text: str, default: str = "") -> None:
        variable = f"E2E_{name.upper().replace('-', '_')}"
        group.addoption(f"--{name}", default=os.environ.get(variable, default), metavar="TEXT", help=f"{text} [{variable}]")

    group.addoption("--kubeconfig", default=os.environ.get("KUBECONFIG", ""), metavar="FILE", help="the cluster's kubeconfig [KUBECONFIG]")
    add("image", "drakit's image, by a name that the nodes have or can pull")
    add("container-image", "image of the checks' own pods, with python3 and sh; drakit's image unless given")
    add("upgrade-image", "another image of drakit: upgraded to, and rolled back from")
    add("on-node", "the node to work on; the first one that is ready unless given")
    add("kubelet-dir", "the kubelet's root directory on the nodes", "/var/lib/kubelet")
    add("replace", "anything: go on, though drakit is installed already; it is removed at the end")
    add("seconds", "the longest wait for one thing", "60")
    add("local", "folder of a node of `drakit cluster`, whose containers run on this machine; drakit runs beside it")
    add("table", "write the table at the end into this file, as Markdown")
    for name in HOOKS:
        add(f"hook-{name}", f"command that does this: {name}; the check is skipped without it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the checks in order, and leave out what a local cluster cannot do."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        name = item.path.stem.removeprefix("check_")
        return item.get_closest_marker("last") is not None, _ORDER.index(name)

    items.sort(key=place)
    if config.getoption("--local"):
        left = [item for item in items if item.get_closest_marker("real")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


RUN = pytest.StashKey[Run]()
ROWS = pytest.StashKey[dict[str, table.Row]]()


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config) -> Iterator[Run]:
    """drakit, installed on the cluster, until all checks are done; then everything is removed again."""
    option = pytestconfig.getoption
    if not option("--kubeconfig"):
        pytest.exit("no cluster: set KUBECONFIG or --kubeconfig", returncode=4)
    if not option("--image") and not option("--local"):
        pytest.exit("no image: set E2E_IMAGE or --image", returncode=4)
    local = pathlib.Path(option("--local")).absolute() if option("--local") else None
    pause = _LOCAL_PAUSE_SECONDS if local else _PAUSE_SECONDS
    api = Api.of(pathlib.Path(option("--kubeconfig")).absolute(), seconds=float(option("--seconds")), pause=pause)
    node = option("--on-node") or _first_node(api)
    driver = drivers.Driver(api=api, node=node, image=option("--image"), local=local)
    image = option("--container-image") or option("--image") or "local"
    space = workspace.Workspace(api=api, node=node, image=image, logs=local / "logs" if local else None)
    made = Run(
        api=api,
        driver=driver,
        space=space,
        gates=feature_gates.Gates(api, namespace=workspace.NAMESPACE, labelled=workspace.LABELLED, node=node),
    )
    pytestconfig.stash[RUN] = made
    if local is None and not option("--replace") and api.find("Namespace", drivers.NAMESPACE) is not None:
        pytest.exit("drakit is installed already, and the suite would remove it; to go on, set E2E_REPLACE=1 or --replace 1", returncode=4)
    with contextlib.ExitStack() as stack:
        stack.callback(space.remove)
        space.make()
        if local is None:
            stack.callback(driver.delete, "mock")
            driver.apply("mock")
        else:
            driver.make_classes()
        stack.callback(space.clear)
        driver.offers(*drivers.DRIVERS)
        yield made


def _first_node(api: Api) -> str:
    for node in api.list("Node"):
        conditions = {
            json_types.text(one, "type"): json_types.text(one, "status") for one in json_types.objects(node, "status", "conditions")
        }
        if conditions.get("Ready") == "True" and json_types.at(node, "spec", "unschedulable") is not True:
            return json_types.text(node, "metadata", "name")
    raise AssertionError("no node is ready")


@pytest.fixture
def api(run: Run) -> Api:
    return run.api


@pytest.fixture
def driver(run: Run) -> drivers.Driver:
    return run.driver


@pytest.fixture
def gates(run: Run) -> feature_gates.Gates:
    return run.gates


@pytest.fixture
def space(run: Run) -> Iterator[workspace.Workspace]:
    """The namespaces, empty before and after."""
    yield run.space
    run.space.clear()


@pytest.fixture(autouse=True)
def requirements(request: pytest.FixtureRequest) -> None:
    """Skip a check whose gates or hooks are missing, and say which."""
    for marker in request.node.iter_markers("gates"):
        if missing := request.getfixturevalue("gates").missing(marker.args):
            pytest.skip(f"gate {', '.join(missing)} is off")
    for marker in request.node.iter_markers("hook"):
        if missing := [name for name in marker.args if not request.config.getoption(f"--hook-{name}")]:
            pytest.skip(f"no command given: {', '.join(f'--hook-{name}' for name in missing)}")


@pytest.fixture
def hook(pytestconfig: pytest.Config) -> Hooks:
    return Hooks(pytestconfig)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep a row for each check; one that fails gets the state of the cluster as it is now."""
    report = yield
    _keep(item, report)
    made = item.config.stash.get(RUN, None)
    if made is not None and report.failed and report.when != "teardown":
        report.sections.append(("cluster", made.api.evidence(workspace.NAMESPACE, workspace.LABELLED, "drakit-demo", drivers.NAMESPACE)))
        report.sections.append(("drakit", made.driver.logs()))
    return report


def _keep(item: pytest.Item, report: pytest.TestReport) -> None:
    rows = item.config.stash.setdefault(ROWS, {})
    before = rows.get(item.nodeid)
    seconds = report.duration + (before.seconds if before and report.when != "setup" else 0.0)
    result, note = (before.result, before.note) if before else ("interrupted", "")
    if report.when == "call" and report.passed:
        result = "passed"
    if report.skipped:
        result, note = (
            "skipped",
            str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: "),
        )
    elif report.failed:
        result, note = "failed", str(report.longrepr).strip().splitlines()[-1]
    theme = table.title(item.path.stem)
    rows[item.nodeid] = table.Row(theme=theme, shown=table.title(item.name), result=result, seconds=seconds, note=note)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, and write it where it was asked for."""
    rows = list(config.stash.get(ROWS, {}).values())
    terminalreporter.section("what was shown")
    for line in table.terminal(rows):
        terminalreporter.write_line(line)
    if path := config.getoption("--table"):
        pathlib.Path(path).write_text(table.markdown(rows, _facts(config)), encoding="utf-8")


def _facts(config: pytest.Config) -> dict[str, str]:
    made = config.stash.get(RUN, None)
    if made is None:
        return {}
    node = json_types.mapping(made.api.get("Node", made.space.node), "status", "nodeInfo")
    return {
        "Kubernetes API server": made.api.version(),
        "kubelet": json_types.text(node, "kubeletVersion"),
        "container runtime": json_types.text(node, "containerRuntimeVersion"),
        "kernel": json_types.text(node, "kernelVersion"),
        "drakit": _drakit(),
        "suite on": f"Python {platform.python_version()}",
    }


def _drakit() -> str:
    from importlib import metadata

    commit = subprocess.run(["git", "-C", str(drivers.ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"{metadata.version('drakit')} {commit.stdout.strip()}".strip()
