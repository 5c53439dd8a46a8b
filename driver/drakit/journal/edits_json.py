"""Container edits as the journal keeps them: CDI's words for keys, environment as an object.

This is not a CDI document: that one is made by ``drakit.cdi`` when it is needed, and its form may change while this one must stay readable.
"""

from drakit.core import edits
from drakit.journal import fields


def encode(content: edits.Edits) -> dict[str, object]:
    """All edits as a JSON object."""
    return fields.compact(
        env=dict(content.env),
        deviceNodes=[_node(node) for node in content.device_nodes],
        mounts=[_mount(mount) for mount in content.mounts],
        hooks=[_hook(hook) for hook in content.hooks],
        netDevices=[{"hostInterfaceName": link.host_interface_name, "name": link.name} for link in content.net_devices],
    )


def decode(source: fields.Fields) -> edits.Edits:
    """The edits of a JSON object; raises UnreadableError."""
    return edits.Edits(
        env=source.text_map("env"),
        device_nodes=tuple(_decode_node(node) for node in source.children("deviceNodes")),
        mounts=tuple(_decode_mount(mount) for mount in source.children("mounts")),
        hooks=tuple(_decode_hook(hook) for hook in source.children("hooks")),
        net_devices=tuple(
            edits.NetDevice(host_interface_name=link.text("hostInterfaceName"), name=link.text("name"))
            for link in source.children("netDevices")
        ),
    )


def _node(node: edits.DeviceNode) -> dict[str, object]:
    return fields.compact(
        path=node.path,
        hostPath=node.host_path,
        type=node.type,
        major=node.major,
        minor=node.minor,
        fileMode=node.file_mode,
        permissions=node.permissions,
    )


def _decode_node(source: fields.Fields) -> edits.DeviceNode:
    return edits.DeviceNode(
        path=source.text("path"),
        host_path=source.text("hostPath"),
        type=source.text("type"),
        major=source.whole("major"),
        minor=source.whole("minor"),
        file_mode=source.whole("fileMode"),
        permissions=source.text("permissions"),
    )


def _mount(mount: edits.Mount) -> dict[str, object]:
    return fields.compact(hostPath=mount.host_path, containerPath=mount.container_path, options=list(mount.options), type=mount.type)


def _decode_mount(source: fields.Fields) -> edits.Mount:
    return edits.Mount(
        host_path=source.text("hostPath"),
        container_path=source.text("containerPath"),
        options=source.texts("options"),
        type=source.text("type"),
    )


def _hook(hook: edits.Hook) -> dict[str, object]:
    return fields.compact(hookName=hook.name.value, path=hook.path, args=list(hook.args), env=dict(hook.env), timeout=hook.timeout)


def _decode_hook(source: fields.Fields) -> edits.Hook:
    try:
        name = edits.HookName(source.text("hookName"))
    except ValueError as error:
        raise fields.UnreadableError(f"{source.path}.hookName: {error}") from error
    return edits.Hook(
        name=name, path=source.text("path"), args=source.texts("args"), env=source.text_map("env"), timeout=source.whole("timeout")
    )
