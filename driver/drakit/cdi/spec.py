"""Encode and decode a CDI specification document for one prepared grant (CDI spec 1.1.0, cncf-tags/container-device-interface).

The document declares the lowest sufficient version, so that old runtimes accept it, but at least 0.5.0: a device name starts with a claim UID, which
may start with a digit, and runtimes reject that in documents of 0.3.0 and 0.4.0. The rules that a runtime applies when it loads a file are checked
here first, because the runtime reports a bad file only as "unresolvable CDI devices". The bytes are deterministic.

A file in the CDI directory can be damaged or edited by hand, and a restore relies on it. So ``decode`` accepts only the output of ``encode``: other
fields, values of another type, a duplicate key, and edits that a runtime would reject are errors.
"""

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from drakit.core import edits, errors, names, records
from drakit.core.encoding import wire

LOWEST_VERSION: Final = "0.5.0"
_FILE_NAME_MAX = 255
_UID_LENGTH = 36
_INTERFACE_NAME_MAX = 15
_TIMEOUT_MAX = 2**32 - 1
_INT64_MAX = 2**63 - 1
_FILE_MODE_MAX = 0o7777
_NODE_TYPES = frozenset({"", "b", "c", "u", "p"})
_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")

SIZE_MAX = 1 << 20
"""The largest size of a file in bytes."""
_TEXTS = wire.Format().converter(tuple[str, ...])


def _decode_env(value: object) -> dict[str, str]:
    pairs = [variable.partition("=") for variable in _TEXTS.decode(value)]
    variables = {name: text for name, _, text in pairs}
    if len(variables) < len(pairs) or not all(sign for _, sign, _ in pairs):
        raise errors.ConfigError("must be NAME=value, each name once")
    return variables


def _encode_env(variables: Mapping[str, str]) -> list[str]:
    """Return NAME=value entries in order of name; a value may contain '=' and newlines."""
    return [f"{name}={variables[name]}" for name in sorted(variables)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Device:
    name: str
    container_edits: edits.Edits


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Document:
    cdi_version: str
    kind: str
    devices: tuple[_Device, ...]


_ENV = wire.Converter(_decode_env, _encode_env)
_FORMAT = wire.Format(
    fields={
        (edits.Edits, "env"): wire.Field(converter=_ENV),
        (edits.Hook, "env"): wire.Field(converter=_ENV),
        (edits.Hook, "name"): wire.Field(name="hookName"),
        (edits.Mount, "options"): wire.Field(absent=()),
    }
)

_DOCUMENT = _FORMAT.converter(_Document)
# No indentation, because with it the standard library's encoder runs in Python and is ten times as slow.
_ENCODER = json.JSONEncoder(sort_keys=True)


def file(name: edits.CdiName, content: edits.Edits) -> tuple[str, bytes]:
    """Return the file's name and bytes. Raises CdiError, naming a field that a runtime would reject, and ClaimError for a malformed identity."""
    filename = file_name(name)
    check_edits(content)
    device = _Device(name=name.device_name, container_edits=content)
    document = _DOCUMENT.encode(_Document(cdi_version=version_for(content), kind=name.kind, devices=(device,)))
    return filename, f"{_ENCODER.encode(document)}\n".encode()


def encode(name: edits.CdiName, content: edits.Edits) -> bytes:
    """Return the document as bytes. Raises as ``file`` does."""
    return file(name, content)[1]


def decode(name: edits.CdiName, content: bytes) -> edits.Edits:
    """Return the edits of the file of this name. Raises CdiError, naming a field that ``encode`` would not write."""
    if len(content) > SIZE_MAX:
        raise errors.CdiError(f"is over {SIZE_MAX} bytes")
    try:
        document: _Document = wire.decode(_DOCUMENT, records.parse_strict(content), "document")
    except errors.ConfigError as error:
        raise errors.CdiError(str(error)) from error
    except ValueError as error:
        raise errors.CdiError(f"is not JSON that can be read ({error})") from error
    if [document.kind, *(device.name for device in document.devices)] != [name.kind, name.device_name]:
        raise errors.CdiError(f"is not about {name.qualified} alone")
    content_edits = document.devices[0].container_edits
    check_edits(content_edits)
    if document.cdi_version != version_for(content_edits):
        raise errors.CdiError(f"cdiVersion: {document.cdi_version!r} is not {version_for(content_edits)!r}, which these edits need")
    return content_edits


def version_for(content: edits.Edits) -> str:
    """Return the lowest CDI version that can express the edits, at least 0.5.0."""
    # No other field needs more than 0.5.0. Edits cannot express annotations (0.6.0), intelRdt and additionalGids (0.7.0).
    return "1.1.0" if content.net_devices else LOWEST_VERSION


def identity(content: bytes, driver: str) -> edits.CdiName | None:
    """Return the grant that a document belongs to, by its content; None for bytes that are no document of this driver."""
    try:
        document = json.loads(content)
        (device,) = document["devices"]
        kind, name = str(document["kind"]), str(device["name"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    rest, _, request = name[_UID_LENGTH + 1 :].partition("_")
    share = (
        names.ShareId(rest[-_UID_LENGTH:]) if names.is_uid(rest[-_UID_LENGTH:]) and rest[-_UID_LENGTH - 1 : -_UID_LENGTH] == "-" else None
    )
    cdi_name = edits.CdiName(
        driver=driver,
        claim_uid=names.ClaimUid(name[:_UID_LENGTH]),
        device=rest[: -_UID_LENGTH - 1] if share else rest,
        share_id=share,
        request=request,
    )
    well_formed = names.is_uid(cdi_name.claim_uid) and names.is_label(cdi_name.device) and _DEVICE.fullmatch(name)
    return cdi_name if well_formed and (cdi_name.kind, cdi_name.device_name) == (kind, name) else None


def file_prefix(driver: str) -> str:
    """Return the prefix of the names of a driver's files. No driver name contains '_', so no driver's prefix starts another's."""
    return f"{driver}-claim_"


def file_name(name: edits.CdiName) -> str:
    """Return ``<driver>-claim_<device name>.json``; over 255 bytes a digest replaces its end. Raises as ``check_name`` does."""
    check_name(name)
    stem = f"{file_prefix(name.driver)}{name.device_name}"
    stem_max = _FILE_NAME_MAX - len(".json")
    if len(stem) > stem_max:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
        stem = f"{stem[: stem_max - len(digest) - 1]}-{digest}"
    return f"{stem}.json"


def check_driver(driver: str) -> str:
    """Return a driver name that can be a CDI vendor, which must start with a letter. Raises CdiError."""
    if names.is_subdomain(driver, limit=names.DRIVER_MAX) and _VENDOR.fullmatch(driver):
        return driver
    raise errors.CdiError(f"driver: {driver!r} cannot be a CDI vendor; use a DNS subdomain that starts with a letter")


def check_uid(uid: str, field: str) -> str:
    """Return a UUID, the only form that may become part of a path. Raises ClaimError."""
    if names.is_uid(uid):
        return uid
    raise errors.ClaimError(errors.ClaimFault.MALFORMED, f"{uid!r} is not a UUID", field=field)


def check_name(name: edits.CdiName) -> None:
    """Raise ClaimError, or CdiError for the device, for an identity with a part that may not become part of a path. The driver is checked already."""
    check_uid(name.claim_uid, "claim.uid")
    if name.share_id is not None:
        check_uid(name.share_id, "shareID")
    if not names.is_label(name.device):
        raise errors.CdiError(f"device: {name.device!r} is not a DNS label")
    if not _DEVICE.fullmatch(name.device_name):
        raise errors.CdiError(f"request: {name.request!r} cannot be part of a CDI device name; use DNS labels")


def check_edits(content: edits.Edits) -> None:
    """Raise CdiError for edits that a runtime would reject, naming the field."""
    if not content:
        raise errors.CdiError("edits: empty; a runtime rejects a CDI device without edits, so give the container no CDI id instead")
    _check_env("env", content.env)
    for number, node in enumerate(content.device_nodes):
        _check_node(f"deviceNodes[{number}]", node)
    for number, mount in enumerate(content.mounts):
        field = f"mounts[{number}]"
        if not mount.host_path:
            raise _rejected(f"{field}.hostPath", "is required")
        _check_path(f"{field}.containerPath", mount.container_path)
        _check_texts(field, mount.host_path, mount.type, *mount.options)
    for number, hook in enumerate(content.hooks):
        field = f"hooks[{number}]"
        _check_path(f"{field}.path", hook.path)
        _check_texts(f"{field}.args", *hook.args)
        _check_env(f"{field}.env", hook.env)
        if hook.timeout is not None and not 1 <= hook.timeout <= _TIMEOUT_MAX:
            raise _rejected(f"{field}.timeout", f"{hook.timeout} is not a number of seconds from 1 up")
    if content.net_devices:
        _check_net(content.net_devices)


def _rejected(field: str, reason: str) -> errors.CdiError:
    return errors.CdiError(f"edits.{field}: {reason}")


def _check_env(field: str, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not name or "=" in name:
            raise _rejected(f"{field}[{name!r}]", "a name must not be empty or contain '='")
        _check_texts(f"{field}[{name!r}]", name, value)


def _check_node(field: str, node: edits.DeviceNode) -> None:
    _check_path(f"{field}.path", node.path)
    if node.host_path:
        _check_path(f"{field}.hostPath", node.host_path)
    if node.type not in _NODE_TYPES:
        raise _rejected(f"{field}.type", f"{node.type!r} is not one of b, c, u, p")
    if set(node.permissions) - set("rwm"):
        raise _rejected(f"{field}.permissions", f"{node.permissions!r} may contain only r, w and m")
    if (node.major is None) != (node.minor is None):
        raise _rejected(field, "give major and minor, or neither")
    for key, number, limit in (
        ("major", node.major, _INT64_MAX),
        ("minor", node.minor, _INT64_MAX),
        ("fileMode", node.file_mode, _FILE_MODE_MAX),
    ):
        if number is not None and not 0 <= number <= limit:
            raise _rejected(f"{field}.{key}", f"{number} is out of range")


def _check_net(links: tuple[edits.NetDevice, ...]) -> None:
    for number, link in enumerate(links):
        for key, name in (("hostInterfaceName", link.host_interface_name), ("name", link.name)):
            if not _is_interface_name(name):
                raise _rejected(f"netDevices[{number}].{key}", f"{name!r} is not an interface name")
    for key, used in (("hostInterfaceName", [link.host_interface_name for link in links]), ("name", [link.name for link in links])):
        for name, count in Counter(used).items():
            if count > 1:
                raise _rejected("netDevices", f"{key} {name!r} is used {count} times")


def _is_interface_name(name: str) -> bool:
    """Return whether the kernel accepts a name (dev_valid_name): 1 to 15 bytes, no '/', ':' or white space, not '.' or '..'."""
    fits = 0 < len(name.encode(errors="replace")) <= _INTERFACE_NAME_MAX
    return fits and name not in {".", ".."} and name.isprintable() and not any(char in "/:" or char.isspace() for char in name)


def _check_path(field: str, path: str) -> None:
    if not path.startswith("/"):
        raise _rejected(field, f"{path!r} is not an absolute path")
    _check_texts(field, path)


def _check_texts(field: str, *texts: str) -> None:
    """Raise CdiError for a text that an argument list or JSON in UTF-8 cannot contain."""
    together = "".join(texts)
    if together.isascii() and "\0" not in together:
        return
    for text in texts:
        if "\0" in text:
            raise _rejected(field, f"{text!r} contains a NUL")
        if not text.isascii() and text.encode(errors="replace").decode() != text:
            raise _rejected(field, f"{text!r} is not valid Unicode")
