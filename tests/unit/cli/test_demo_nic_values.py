"""What the demo asks of an interface of any speed, what it remembers, and how it tells a difference."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drakit.core import errors, quantity
from drakit_nic import settings as nic_settings
from drakit_nic.discovery import offers
from drakit_tools.demo.nic import figures, interface_state, saved_state

NOTE = saved_state.SavedState(
    interface="eth1", ifindex=3, mac="02:00:00:00:00:01", cookie=2**63 + 1, boot="b", pid=7, lines=("link eth1", "qdisc mq 0:")
)


@given(st.integers(min_value=figures.SPEED_MIN, max_value=10**12))
def test_requested_bandwidth_is_rounded_up_and_fits_at_either_speed(speed: int) -> None:
    chosen = figures.Figures.of(speed)
    rates = {"default": chosen.default, "min": chosen.step, "step": chosen.step}
    policy = nic_settings.BandwidthPolicy.of({name: quantity.Quantity.of(amount) for name, amount in rates.items()})
    for at in (speed, chosen.lowered):
        capacity = offers.shareable(at - chosen.reserve, policy)
        assert capacity is not None
        assert sum(chosen.consumed.values()) <= capacity.value.value
    for name, amount in chosen.asked.items():
        if amount is not None:
            assert amount % chosen.step, "a request that is no multiple shows rounding"
            assert chosen.consumed[name] == -(-amount // chosen.step) * chosen.step
    assert chosen.consumed[figures.METRICS] == chosen.default


@given(st.integers(min_value=0, max_value=figures.SPEED_MIN - 1))
def test_an_interface_too_slow_to_be_shared_is_refused(speed: int) -> None:
    with pytest.raises(errors.SettingsError, match="is too slow to be shared; the minimum is 10M"):
        figures.Figures.of(speed)


def test_the_stored_state_of_the_demo_is_read_back(tmp_path: pathlib.Path) -> None:
    place = saved_state.StateFolder.of("eth1", tmp_path)
    assert place.read() is None
    place.write(NOTE)
    assert place.read() == NOTE
    assert [entry.name for entry in tmp_path.iterdir()] == [saved_state.FILE]
    place.remove()
    assert place.read() is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2}', NOTE.to_json().replace('"pid": 7', '"pid": "7"')])
def test_an_invalid_state_file_is_an_error_that_names_it(tmp_path: pathlib.Path, text: str) -> None:
    place = saved_state.StateFolder.of("eth1", tmp_path)
    place.file.write_text(text)
    with pytest.raises(errors.SettingsError, match=rf"^{place.file}: cannot be read \(.*Check the interface, then remove the file"):
        place.read()


def test_the_default_folder_belongs_to_the_interface() -> None:
    assert saved_state.StateFolder.of("eth1", None) == saved_state.StateFolder(folder=pathlib.Path("/var/lib/drakit/demo/eth1"))


def test_a_second_demo_on_one_folder_is_refused(tmp_path: pathlib.Path) -> None:
    place = saved_state.StateFolder.of("eth1", tmp_path / "place")
    with saved_state.held(place), pytest.raises(errors.SettingsError, match="another demo uses "), saved_state.held(place):
        pass
    with saved_state.held(place):
        assert place.folder.stat().st_mode & 0o777 == 0o700


def test_differences_name_missing_and_extra_lines() -> None:
    assert interface_state.differences(("a", "b"), ("b", "c")) == ("- a", "+ c")
    assert interface_state.differences(("a", "b"), ("b", "a")) == ()
    assert interface_state.only(("link x", "route y", "linker"), "link", "qdisc") == ("link x",)
