"""CDI edits of a GPU or MIG device: its device nodes and environment.

Device nodes carry their numbers, so that a runtime can create them where the host has none. A MIG device needs its parent's node and two capability
nodes, for its GPU instance and its compute instance. CUDA does not see it without them.
"""

from collections.abc import Mapping

from drakit.core import edits
from drakit.devices.gpu import port

_CHARACTER = "c"
_CONTROL_MINOR = 255
_MODESET_MINOR = 254
_READABLE = 0o444  # a capability is opened for reading; the kernel checks nothing else


def of_gpu(request: str, device: str, gpu: port.Gpu, majors: port.DeviceMajors) -> edits.Edits:
    """Return the edits of a whole GPU."""
    return edits.Edits(env=_environment(request, device, gpu.uuid), device_nodes=_common(gpu, majors))


def of_mig(
    request: str, device: str, gpu: port.Gpu, mig_uuid: str, majors: port.DeviceMajors, minors: port.CapabilityMinors
) -> edits.Edits:
    """Return the edits of a MIG device; raises CallError where the kernel driver has no capabilities, which CUDA needs."""
    if majors.caps is None:
        raise port.CallError(
            port.CALLS["device_majors"], port.Code.NOT_SUPPORTED, "nvidia-caps is not in /proc/devices; MIG devices need it"
        )
    capabilities = (
        _node(f"/dev/nvidia-caps/nvidia-cap{minor}", majors.caps, minor, _READABLE)
        for minor in (minors.gpu_instance, minors.compute_instance)
    )
    return edits.Edits(env=_environment(request, device, mig_uuid), device_nodes=(*_common(gpu, majors), *capabilities))


def merged(*parts: edits.Edits) -> edits.Edits:
    """Return several edits as one; of two variables with one name the later one wins."""
    return edits.Edits(
        env={name: value for part in parts for name, value in part.env.items()},
        device_nodes=tuple(node for part in parts for node in part.device_nodes),
        mounts=tuple(mount for part in parts for mount in part.mounts),
        hooks=tuple(hook for part in parts for hook in part.hooks),
    )


def variable(request: str, device: str) -> str:
    """Return the name of the variable with the device's UUID, for example ``GPU_DEVICE_TRAINER_GPU_0``.

    It has the request, which the workload knows, and the device, whose name is unique on the node. So two claims in one container never set the same
    variable.
    """
    return f"GPU_DEVICE_{request}_{device}".upper().replace("-", "_").replace("/", "_")


def _environment(request: str, device: str, uuid: str) -> Mapping[str, str]:
    # "void" keeps NVIDIA's legacy runtime hook from injecting devices of its own choice on top.
    return {"NVIDIA_VISIBLE_DEVICES": "void", variable(request, device): uuid}


def _common(gpu: port.Gpu, majors: port.DeviceMajors) -> tuple[edits.DeviceNode, ...]:
    return (
        _node(f"/dev/nvidia{gpu.minor}", majors.nvidia, gpu.minor),
        _node("/dev/nvidiactl", majors.nvidia, _CONTROL_MINOR),
        _node("/dev/nvidia-modeset", majors.nvidia, _MODESET_MINOR),
        _node("/dev/nvidia-uvm", majors.uvm, 0),
        _node("/dev/nvidia-uvm-tools", majors.uvm, 1),
    )


def _node(path: str, major: int, minor: int, mode: int | None = None) -> edits.DeviceNode:
    return edits.DeviceNode(path=path, type=_CHARACTER, major=major, minor=minor, file_mode=mode)
