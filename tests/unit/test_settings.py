"""Four sources, later ones win, and nothing unknown passes."""

import pathlib

import pytest

from drakit import settings
from drakit.core import errors, quantity
from drakit.settings import schema
from drakit_nic import options


def load(flags: dict[str, object] | None = None, file: pathlib.Path | None = None, **environ: str) -> settings.Settings:
    return settings.load(flags or {}, file=file, environ=environ)


def write(tmp_path: pathlib.Path, text: str) -> pathlib.Path:
    path = tmp_path / "drakit.yaml"
    path.write_text(text)
    return path


def test_defaults_hold_without_any_source() -> None:
    assert load() == schema.current().model()


def test_the_file_beats_the_default_the_environment_the_file_and_flags_all(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path, "node: {name: from-file}\npublish: {rescan: 7}\nlog: {level: debug}\n")
    found = load({"node.name": "from-flag"}, file, DRAKIT_NODE__NAME="from-env", DRAKIT_PUBLISH__RESCAN="8")
    assert (found.node.name, found.publish.rescan, found.log.level) == ("from-flag", 8, "debug")


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    assert load({"node.name": None}, DRAKIT_NODE__NAME="env").node.name == "env"


def test_lists_and_rules_can_come_from_the_environment() -> None:
    found = load(DRAKIT_NIC__INCLUDE="[eth1, eth2]", DRAKIT_NIC__RULES="[{match: 'eth*', speed: 10G}]")
    assert found.group("nic").include == ("eth1", "eth2")
    assert found.group("nic").rules == (options.NicRule(match="eth*", speed=quantity.Quantity.of("10G")),)


WRONG = {
    "unknown group": ("nodes: {name: x}", "nodes: is not a setting"),
    "unknown key": ("node: {nam: x}", "node.nam: is not a setting; did you mean node.name?"),
    "a removed setting": ("serve: {grpc_health: '127.0.0.1:1'}", "serve.grpc_health: was removed; probe serve.socket with drakit-probe"),
    "a number as a key": ("node: {0: x}", "node.0: is not a setting; did you mean node.name?"),
    "wrong type": ("publish: {rescan: soon}", "publish.rescan:"),
    "unknown choice": ("log: {level: loud}", "log.level:"),
    "unknown key in a rule": ("nic: {rules: [{match: eth0, sped: 1G}]}", "nic.rules.0.sped"),
    "not a mapping": ("[1, 2]", "must be a mapping"),
    "not YAML": ("{", "is not YAML"),
    "a key twice": ("node: {name: a, name: b}", "the key name is given twice"),
    "no node name": ("node: {name: My_Node}", "node.name: 'My_Node' is not a node name"),
    "relative folder": ("node: {cdi_dir: cdi}", "node.cdi_dir: 'cdi' must be an absolute path"),
    "no pause": ("publish: {rescan: 0}", "publish.rescan:"),
    "endless pause": ("publish: {rescan: .inf}", "publish.rescan:"),
    "no number": ("publish: {rescan: .nan}", "publish.rescan:"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_by_key(tmp_path: pathlib.Path, case: str) -> None:
    text, expected = WRONG[case]
    with pytest.raises(errors.SettingsError) as caught:
        load(file=write(tmp_path, text))
    assert expected in str(caught.value)


def test_a_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.SettingsError, match=r"absent\.yaml: cannot read"):
        load(file=tmp_path / "absent.yaml")


@pytest.mark.parametrize("name", ["DRAKIT_NODE_NAME", "DRAKIT_NOED__NAME", "DRAKIT_"])
def test_an_unknown_variable_is_refused(name: str) -> None:
    with pytest.raises(errors.SettingsError, match="is not a setting"):
        settings.load({}, environ={name: "x"})


def test_a_variable_of_a_removed_setting_names_what_replaced_it() -> None:
    with pytest.raises(errors.SettingsError, match=r"^DRAKIT_SERVE__GRPC_HEALTH: was removed; probe serve\.socket with drakit-probe"):
        settings.load({}, environ={"DRAKIT_SERVE__GRPC_HEALTH": "127.0.0.1:1"})


def test_variables_of_others_are_not_ours() -> None:
    assert load(PATH="/bin", DRAKITX="1") == schema.current().model()


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().node.name = "other"


def test_a_variable_that_is_not_yaml_is_named() -> None:
    with pytest.raises(errors.SettingsError, match="DRAKIT_NIC__INCLUDE: is not YAML"):
        load(DRAKIT_NIC__INCLUDE="[eth0")


def test_an_empty_kubeconfig_is_none() -> None:
    assert load(DRAKIT_API__KUBECONFIG="").api.kubeconfig is None


def test_a_file_in_another_encoding_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("node: {name: caf\u00e9}".encode("latin-1"))
    with pytest.raises(errors.SettingsError, match="is not UTF-8"):
        load(file=path)
