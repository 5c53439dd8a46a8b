"""The image adds one layer that is small, compiled, and complete; `make image-check` shows the same of a built image."""

import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import sysconfig

import pytest

from fakes import waits

ROOT = pathlib.Path(__file__).parents[3]
IMAGE = ROOT / "driver" / "image"
SITE = pathlib.Path(sysconfig.get_path("purelib"))
ASSEMBLE = runpy.run_path(str(IMAGE / "assemble.py"))
UNCHECKED_HASH = b"\x01\x00\x00\x00"
AS_IN_THE_IMAGE = """
import runpy, sys

program, left_out, cluster = sys.argv[1], set(sys.argv[2].split("\\n")), sys.argv[3].split(",")

class Absent:
    def find_spec(self, name, path, target=None):
        path = name.replace(".", "/")
        if name.partition(".")[0] in cluster or {path, f"{path}.py"} & left_out:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
runpy.run_path(program, run_name="__main__")
"""
NOT_IN_THE_IMAGE = "drakit_cluster,httpx,re2,starlette,trustme,uvicorn,cryptography,kubernetes_validate"


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")


def test_the_last_stage_adds_one_layer_and_runs_nothing() -> None:
    last = dockerfile().rpartition("\nFROM ")[2]
    steps = re.findall(r"^(RUN|COPY|ADD|WORKDIR)\b", last, re.MULTILINE)
    assert steps == ["COPY"], "a step that runs something needs an emulator to build for another architecture"


def test_every_pattern_of_what_is_left_out_matches_an_installed_file() -> None:
    assert len(list(ASSEMBLE["matches"](SITE, ASSEMBLE["patterns"]()))) > 500


def test_a_pattern_that_matches_nothing_is_an_error_that_names_it(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SystemExit, match="nothing matches gone/\\*; correct or remove the line"):
        list(ASSEMBLE["matches"](tmp_path, ["gone/*"]))


def test_drakit_and_the_kubernetes_client_import_nothing_that_is_left_out() -> None:
    left_out = [str(path.relative_to(SITE)) for path in ASSEMBLE["matches"](SITE, ASSEMBLE["patterns"]())]
    inside = ROOT / "tests" / "image" / "inside.py"
    command = [sys.executable, "-W", "ignore", "-c", AS_IN_THE_IMAGE, str(inside), "\n".join(left_out), NOT_IN_THE_IMAGE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=waits.SECONDS)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(json.loads(ran.stdout)["imported"]) > 200


def test_bytecode_is_unchecked_and_names_the_file_where_it_runs(tmp_path: pathlib.Path) -> None:
    source, into = tmp_path / "source", tmp_path / "root" / "lib"
    for name in ("package/module.py", "test/module.py"):
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("value = 1\n")
    ASSEMBLE["compile_below"](source, into, pathlib.Path("/lib"), {"test"})
    (compiled,) = into.rglob("*.pyc")
    assert compiled == into / "package" / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"
    content = compiled.read_bytes()
    assert content[4:8] == UNCHECKED_HASH
    assert b"/lib/package/module.py" in content


@pytest.mark.parametrize(
    "arch, compiler, wheels", [("amd64", "x86_64-linux-gnu-gcc", "_x86_64"), ("arm64", "aarch64-linux-gnu-gcc", "_aarch64")]
)
def test_both_architectures_have_a_compiler_and_wheels(arch: str, compiler: str, wheels: str) -> None:
    def target(what: str) -> list[str]:
        return subprocess.run([IMAGE / "target", arch, what], capture_output=True, text=True, check=True).stdout.split()

    assert target("compiler") == [compiler]
    assert {word[word.index("_", word.index("linux")) :] for word in target("wheels") if word.startswith("manylinux2014")} == {wheels}
    assert len(target("packages")) == 2


def test_another_architecture_is_refused_by_name() -> None:
    ran = subprocess.run([IMAGE / "target", "s390x", "compiler"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "the image is built for amd64 and arm64, not for s390x\n")


def test_the_lock_depends_only_on_the_operating_system_so_one_machine_can_resolve_it() -> None:
    markers = set(re.findall(r" ; (.*?) \\$", (ROOT / "requirements" / "image.txt").read_text("utf-8"), re.MULTILINE))
    assert markers == {"sys_platform == 'win32'"}


def built_by(engine: str, folder: pathlib.Path, *variables: str) -> list[str]:
    """The arguments that ``make image`` gives to an engine of this name."""
    program = folder / engine
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$0.log"\n')
    program.chmod(0o755)
    env = {"PATH": os.environ["PATH"]}
    subprocess.run(
        ["make", "-s", "image", f"ENGINE={program}", *variables], cwd=ROOT, env=env, check=True, capture_output=True, timeout=waits.SECONDS
    )
    return (folder / f"{engine}.log").read_text().splitlines()


def test_make_image_names_tag_version_platform_and_digest_to_either_engine(tmp_path: pathlib.Path) -> None:
    digest = f"sha256:{'0' * 64}"
    chosen = ("IMAGE=registry.example.com/drakit", "VERSION=9.9", "REVISION=abc", "PLATFORM=linux/arm64", f"BASE_DIGEST={digest}")
    common = ["--build-arg", f"BASE_DIGEST={digest}", "--build-arg", "VERSION=9.9", "--build-arg", "REVISION=abc"]
    wanted = ["build", "--platform", "linux/arm64", *common, "--tag", "registry.example.com/drakit:9.9", "."]
    assert [built_by(engine, tmp_path, *chosen) for engine in ("docker", "podman")] == [wanted, wanted]


def test_make_image_alone_builds_this_version_for_this_machine(tmp_path: pathlib.Path) -> None:
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version is not None
    words = built_by("docker", tmp_path, "REVISION=")
    assert words == ["build", "--build-arg", f"VERSION={version[1]}", "--tag", f"drakit:{version[1]}", "."]
