"""``drakit show --svg``: a well-formed picture with every device and holder, in which a name is never markup."""

import pathlib
from xml.etree import ElementTree

from drakit.cli import drawing
from drakit_tools.dashboard import model, picture
from fakes import command_line

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = 'default/<script>alert("x")</script>&\x1b]0;x\x07'


def texts(document: str) -> list[str]:
    root = ElementTree.fromstring(document)  # noqa: S314 - the picture is our own
    assert {element.tag for element in root.iter()} <= {f"{SVG}{name}" for name in ("svg", "title", "style", "rect", "text")}
    return [element.text or "" for element in root.iter() if element.tag != f"{SVG}style"]


def state(claim: str) -> model.State:
    spans = (drawing.Span(start=0, size=4, label=claim),)
    gpu = model.Gpu(
        name="gpu-0",
        width=8,
        spans=spans,
        fits={"1g.5gb": 3, "7g.40gb": 0},
        fitting=3,
        total=26,
        after_defragmentation=3,
        health=model.Health(state="Unhealthy", message="Xid 79"),
    )
    nic = model.Nic(name="eth1", capacity=10**11, shares=(model.Share(claim=claim, share="s", amount=25 * 10**9),), health=model.Health())
    return model.State(title=claim, nodes=(model.Node(name="n", pools=(model.Pool(driver="d", name="p", gpus=(gpu,), nics=(nic,)),)),))


def test_the_picture_shows_devices_holders_rates_and_health() -> None:
    shown = texts(picture.svg(state("default/training")))
    assert {"gpu-0", "Unhealthy: Xid 79", "training", "still fits: 3 x 1g.5gb", "eth1: 75Gbit/s of 100Gbit/s free"} <= set(shown)
    assert "25Gbit/s  default/training" in shown


def test_boxes_have_the_proportions_of_slices_and_shares() -> None:
    root = ElementTree.fromstring(picture.svg(state("default/training")))  # noqa: S314 - the picture is our own
    widths = [float(box.attrib["width"]) for box in root.iter(f"{SVG}rect") if box.get("class") == "used" and box.get("width") != "10"]
    assert [round(width) for width in widths] == [404, 201]


def test_a_name_with_markup_is_escaped() -> None:
    document = picture.svg(state(HOSTILE))
    assert "<script" not in document
    assert any("<script>" in text for text in texts(document))


def test_the_command_writes_a_picture_of_the_node_for_light_and_dark(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    assert shell.run("show", "--mock", command_line.MACHINE, "--svg", str(tmp_path / "node.svg")).status == 0
    document = (tmp_path / "node.svg").read_text()
    assert "prefers-color-scheme: dark" in document
    assert {"gpu-0", "gpu-1"} <= set(texts(document))
    refused = shell.run("show", "--mock", command_line.MACHINE, "--svg", str(tmp_path / "no" / "node.svg"))
    assert (refused.status, "--svg" in refused.err) == (1, True)
