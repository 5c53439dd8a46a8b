"""``doctor`` names prepared claims whose device changed, and files that their CDI files name and the host lacks."""

import dataclasses
import pathlib

from drakit import settings
from drakit.cli import views
from drakit.cli.doctor import claims
from drakit.core import claim as core_claims
from drakit.core import edits, inventory, lifecycle, names
from drakit.node import held_devices
from fakes import journal_samples as samples


def not_mounted(_path: pathlib.Path) -> None:
    """No path of the host is seen elsewhere."""


def view(content: edits.Edits, **fields: object) -> views.View:
    grant = dataclasses.replace(samples.entry(1).grants[0], edits=content)
    entry = lifecycle.Entry(claim=ref(), state=lifecycle.State.PREPARED, grants=(grant,))
    return views.View(driver=None, pool="n", offered=inventory.Inventory(), entries=(entry,), **fields)  # type: ignore[arg-type] # unread


def ref() -> core_claims.ClaimRef:
    return core_claims.ClaimRef(uid=names.ClaimUid(samples.uid(1)), namespace="default", name="old")


def test_missing_mounts_and_hooks_are_named(tmp_path: pathlib.Path) -> None:
    mounts = tuple(edits.Mount(host_path=str(tmp_path / name), container_path=f"/{name}") for name in ("a.so", "b.so"))
    (tmp_path / "b.so").touch()
    (found,) = claims.examine(settings.Settings(), view(edits.Edits(mounts=mounts)), not_mounted)
    assert (found.subject, found.verdict.value) == ("default/old", "failed")
    assert f"names 1 missing file: {tmp_path / 'a.so'}" in found.message


def test_a_changed_device_is_named_with_the_reason() -> None:
    seen = view(edits.Edits())
    device = seen.entries[0].grants[0].device
    gone = held_devices.Displaced(device=device, claims=(ref(),), reason="the driver no longer finds it")
    (found,) = claims.examine(settings.Settings(), dataclasses.replace(seen, displaced={device.name: gone}), not_mounted)
    assert found.message == f"{device.name}: the driver no longer finds it"


def test_a_withheld_device_gets_no_advice_to_delete_pods() -> None:
    seen = view(edits.Edits())
    device = seen.entries[0].grants[0].device
    kept = held_devices.Displaced(device=device, claims=(ref(),), reason="eth0 has an address of the host", is_withheld=True)
    assert list(claims.examine(settings.Settings(), dataclasses.replace(seen, displaced={device.name: kept}), not_mounted)) == []
