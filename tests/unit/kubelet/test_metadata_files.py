"""Device metadata files (KEP-5304): what is in them, and that they are whole, durable and gone in time."""

import json
import pathlib
from typing import Any

import pytest

from drakit.core import claim, claim_status, device, edits, errors, lifecycle, names
from drakit.kubelet import metadata

DRIVER = "fake.example.com"
UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")
REF = claim.ClaimRef(uid=UID, namespace="ns", name="training")
CHIP = device.Device(
    name="chip-0",
    attributes={"cores": 8, "model": "x", "fast": True, "example.com/driver": device.Version("1.2.3"), "links": ("a", "b")},
)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> metadata.MetadataFiles:
    return metadata.MetadataFiles(tmp_path / "device-metadata", DRIVER)


def add(
    files: metadata.MetadataFiles,
    request: str = "gpu",
    pod_claim_name: str = "",
    *,
    chip: device.Device = CHIP,
    ref: claim.ClaimRef = REF,
) -> edits.Mount:
    return files.add(ref, pod_claim_name, lifecycle.GrantEntry(request=request, pool="node-1", device=chip), {})


def read(mount: edits.Mount) -> list[dict[str, Any]]:
    """The objects of a file, one after the other, as a reader takes them."""
    text, found, decoder = pathlib.Path(mount.host_path).read_text("utf-8"), [], json.JSONDecoder()
    while text.strip():
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:].lstrip()
    return found


def test_a_file_holds_the_same_facts_in_each_version_the_newest_first(files: metadata.MetadataFiles) -> None:
    objects = read(add(files))
    assert [one.pop("apiVersion") for one in objects] == ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"]
    assert objects[0] == objects[1]
    assert objects[0] == {
        "kind": "DeviceMetadata",
        "metadata": {"name": "training", "namespace": "ns", "uid": UID, "generation": 1},
        "requests": [
            {
                "name": "gpu",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": "node-1",
                        "name": "chip-0",
                        "attributes": {
                            "cores": {"int": 8},
                            "example.com/driver": {"version": "1.2.3"},
                            "fast": {"bool": True},
                            "links": {"strings": ["a", "b"]},
                            "model": {"string": "x"},
                        },
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    "asked, pod_claim_name, path",
    [
        ("gpu", "", "resourceclaims/training/gpu"),
        ("gpu/small", "", "resourceclaims/training/gpu"),
        ("gpu", "accelerator", "resourceclaimtemplates/accelerator/gpu"),
    ],
)
def test_containers_see_it_read_only_where_the_feature_says(
    files: metadata.MetadataFiles, asked: str, pod_claim_name: str, path: str
) -> None:
    mount = add(files, asked, pod_claim_name)
    assert mount.container_path == f"/var/run/kubernetes.io/dra-device-attributes/{path}/{DRIVER}-metadata.json"
    assert mount.options == ("ro", "bind")
    assert pathlib.Path(mount.host_path).stat().st_mode & 0o777 == 0o644
    assert read(mount)[0].get("podClaimName") == (pod_claim_name or None)


def test_one_file_has_all_devices_of_a_request_and_its_full_name(files: metadata.MetadataFiles) -> None:
    other = device.Device(name="chip-1")
    mounts = {add(files, "gpu/small", chip=one) for one in (CHIP, other, CHIP)}
    assert len(mounts) == 1
    [request] = read(mounts.pop())[0]["requests"]
    assert request["name"] == "gpu/small"
    assert [one["name"] for one in request["devices"]] == ["chip-0", "chip-1"]
    assert request["devices"][1] == {"driver": DRIVER, "pool": "node-1", "name": "chip-1"}


def test_an_unchanged_write_keeps_the_inode_that_containers_have_mounted(files: metadata.MetadataFiles) -> None:
    path = pathlib.Path(add(files).host_path)
    before = path.stat()
    add(files)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"metadata": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_written_again(files: metadata.MetadataFiles, content: bytes) -> None:
    path = pathlib.Path(add(files).host_path)
    whole = path.read_bytes()
    path.write_bytes(content)
    add(files)
    assert path.read_bytes() == whole


def test_network_data_reaches_running_containers_in_the_same_file(files: metadata.MetadataFiles) -> None:
    mount = add(files)
    path = pathlib.Path(mount.host_path)
    inode, facts = (
        path.stat().st_ino,
        claim_status.NetworkStatus(interface="net1", addresses=("10.0.0.2/16",), hardware_address="02:00:00:00:00:01"),
    )
    assert files.update(UID, "chip-0", facts)
    assert files.update(UID, "chip-0", facts)
    assert path.stat().st_ino == inode
    for one in read(mount):
        assert one["metadata"] == {"name": "training", "namespace": "ns", "uid": UID, "generation": 2}
        [result] = one["requests"][0]["devices"]
        assert result["networkData"] == {"interfaceName": "net1", "ips": ["10.0.0.2/16"], "hardwareAddress": "02:00:00:00:00:01"}
    add(files)
    assert read(mount)[0]["metadata"] == {"name": "training", "namespace": "ns", "uid": UID, "generation": 2}
    assert not files.update(UID, "chip-9", facts)
    assert not files.update(names.ClaimUid("00000000-0000-4000-8000-000000000002"), "chip-0", facts)


def test_a_shorter_update_truncates_the_file(files: metadata.MetadataFiles) -> None:
    mount = add(files)
    files.update(UID, "chip-0", claim_status.NetworkStatus(interface="net1", addresses=("10.0.0.2/16", "10.0.0.3/16")))
    files.update(UID, "chip-0", claim_status.NetworkStatus(interface="n"))
    assert len(read(mount)) == 2


def test_removing_deletes_all_files_of_one_claim_only(files: metadata.MetadataFiles, tmp_path: pathlib.Path) -> None:
    other = claim.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000002"), namespace="ns", name="training")
    files.remove(UID)
    add(files)
    add(files, "nic")
    kept = add(files, ref=other)
    files.remove(UID)
    files.remove(UID)
    assert [path.name for path in (tmp_path / "device-metadata").iterdir()] == [other.uid]
    assert read(kept)


def test_unchecked_names_reach_no_path(files: metadata.MetadataFiles) -> None:
    with pytest.raises(errors.ClaimError, match="is not a UUID"):
        files.remove(names.ClaimUid("../.."))
    for request in ("../gpu", "gpu/../x", "", "a/"):
        with pytest.raises(errors.InventoryError, match="request"):
            add(files, request)


def test_a_folder_that_cannot_be_written_names_the_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / "device-metadata").write_text("a file in the way")
    with pytest.raises(errors.CdiError, match="device-metadata"):
        add(metadata.MetadataFiles(tmp_path / "device-metadata", DRIVER))


def test_a_file_that_an_earlier_release_wrote_with_indentation_stays_mounted(files: metadata.MetadataFiles) -> None:
    path = pathlib.Path(add(files).host_path)
    path.write_text("".join(json.dumps(json.loads(line), indent=2) + "\n" for line in path.read_text("utf-8").splitlines()), "utf-8")
    before = path.stat().st_ino
    add(files)
    assert path.stat().st_ino == before
    add(files, chip=device.Device(name="chip-1"))
    assert path.stat().st_ino != before
    assert [entry["name"] for entry in read(add(files))[0]["requests"][0]["devices"]] == ["chip-0", "chip-1"]
