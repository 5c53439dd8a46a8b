"""Where a kernel keeps a socket's namespace is read from its own description of its types."""

import pathlib
import struct

import pytest

from drakit_nic.shaping import socket_namespace

INT, POINTER, ARRAY, STRUCT, ENUM = 1, 2, 3, 4, 6
KFLAG = 1 << 31


def btf(*types: tuple[str, int, int, bytes], names: tuple[str, ...] = ()) -> bytes:
    """A description of types: name, kind, number of members, and what follows the type, which may use ``{name}`` by ``at``."""
    strings = text(types, names)
    body = b"".join(struct.pack("=III", at(strings, name), kind << 24 | members, 0) + after for name, kind, members, after in types)
    return struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(strings)) + body + strings


def text(types: tuple[tuple[str, int, int, bytes], ...], names: tuple[str, ...]) -> bytes:
    return b"\0" + b"".join(name.encode() + b"\0" for name in (*(kind[0] for kind in types if kind[0]), *names))


def at(strings: bytes, name: str) -> int:
    return strings.index(f"\0{name}\0".encode()) + 1 if name else 0


def kernel(*, cookie: str = "net_cookie") -> bytes:
    members = ("skc_family", "skc_net", "passive", cookie)
    plain = (("int", INT, 0, bytes(4)), ("", POINTER, 0, b""), ("", ARRAY, 0, bytes(12)), ("kinds", ENUM, 2, bytes(16)))
    shapes = (("sock_common", STRUCT, 2, bytes(24)), ("net", STRUCT, 2, bytes(24)))
    strings = text((*plain, *shapes), members)
    common = b"".join(struct.pack("=III", at(strings, name), 1, 8 * offset) for name, offset in (("skc_family", 16), ("skc_net", 48)))
    net = b"".join(struct.pack("=III", at(strings, name), 1, 8 * offset) for name, offset in (("passive", 0), (cookie, 4160)))
    return btf(*plain, ("sock_common", STRUCT, 2, common), ("net", STRUCT, 2, net), names=members)


def test_the_offsets_of_the_running_kernel_are_found_among_other_types(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vmlinux").write_bytes(kernel())
    assert socket_namespace.read(tmp_path / "vmlinux") == socket_namespace.Offsets(namespace=48, cookie=4160)


def test_a_kernel_whose_namespaces_have_no_cookie_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vmlinux").write_bytes(kernel(cookie="gen_id"))
    with pytest.raises(OSError, match=r"vmlinux has no net\.net_cookie"):
        socket_namespace.read(tmp_path / "vmlinux")


@pytest.mark.parametrize("content", [b"", b"\x9f\xeb", kernel()[:60], b"\0" * 200, kernel()[:24] + b"\xff" * 200])
def test_an_unreadable_description_is_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    with pytest.raises(OSError, match="vmlinux"):
        socket_namespace.read(tmp_path / "vmlinux")


def test_a_kernel_without_a_description_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        socket_namespace.read(tmp_path / "vmlinux")
