"""Whether a folder lies on a mount that the host sees, by the text of /proc/self/mountinfo (proc(5)), whoever wrote into it."""

import pytest

from drakit_gpu.sharing.mps import daemon_folder

HOST = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
SHARED = "30 22 0:25 / /plugins rw,relatime shared:7 - tmpfs none rw\n"
PRIVATE = "31 30 0:26 / /plugins/gpu rw,relatime - tmpfs none rw\n"


@pytest.mark.parametrize(
    "mounts, place, is_shared",
    [
        (HOST, "/plugins/gpu", False),
        (HOST + SHARED, "/plugins/gpu", True),
        (HOST + SHARED, "/pluginsX/gpu", False),
        (HOST + SHARED + PRIVATE, "/plugins/gpu/shm", False),
        (HOST + SHARED + PRIVATE, "/plugins/other", True),
        (HOST + SHARED.replace("/plugins", "/my\\040plugins"), "/my plugins/gpu", True),
        ("", "/plugins", False),
    ],
)
def test_the_innermost_mount_decides(mounts: str, place: str, is_shared: bool) -> None:  # noqa: FBT001 - what is expected
    assert daemon_folder.is_shared_mount(mounts, place) is is_shared


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u3000", "\r", "\udcff", "-"])
def test_a_mount_with_escaped_characters_hides_no_other(odd: str) -> None:
    stranger = f"40 22 0:40 / /home/u{odd}v rw,nosuid shared:9 - fuse.x {odd} rw,user_id=1000\n"
    assert daemon_folder.is_shared_mount(HOST + stranger + SHARED + stranger, "/plugins/gpu")
    assert not daemon_folder.is_shared_mount(HOST + stranger, "/plugins/gpu")
