"""Checks of a driver's registration: the kubelet must accept its answer to GetInfo. Source: pluginregistration v1."""

import re
import stat
from collections.abc import Callable, Mapping

import grpc

from drakit.testing import report as reports
from drakit_cluster.kubelet.plugins.endpoint import SERVICE, CallError
from drakit_tools.conformance import sockets
from drakit_tools.conformance.claims import unknown

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NAME_MAX = 63
_NO_ANSWER = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def _type(info: sockets.Info) -> None:
    _require(info.type == "DRAPlugin", f"type is {info.type!r}; the kubelet takes 'DRAPlugin' for a DRA driver")


def _name(info: sockets.Info) -> None:
    is_name = len(info.name) <= _NAME_MAX and _SUBDOMAIN.fullmatch(info.name)
    _require(is_name, f"name is {info.name!r}; a driver's name is a DNS subdomain of at most {_NAME_MAX} characters")


def _in_time(info: sockets.Info) -> None:
    limit = sockets.GET_INFO_SECONDS
    _require(info.seconds < limit, f"GetInfo took {info.seconds:.1f} s; the kubelet times out after {limit:g} s")


def _endpoint(info: sockets.Info) -> None:
    _require(not info.endpoint or info.endpoint.startswith("/"), f"endpoint is {info.endpoint!r}; the kubelet needs an absolute path")
    try:
        mode = info.service.stat().st_mode
    except OSError as error:
        raise AssertionError(f"endpoint is {info.endpoint!r}, which cannot be used: {error.strerror}") from error
    _require(stat.S_ISSOCK(mode), f"endpoint is {info.endpoint!r}, which is not a socket")


def _versions(info: sockets.Info) -> None:
    listed = ", ".join(info.versions) or "empty"
    _require(info.has_service, f"supported_versions is {listed}; add {SERVICE}, the service that the kubelet calls")


def answers(info: sockets.Info, seconds: float) -> None:
    """Require that both calls of the DRA service are answered within ``seconds``."""
    if not info.has_service:
        raise reports.NotApplicableError("the DRA service is not offered")
    with sockets.service(info.service, seconds) as service:
        for name, call in (("NodePrepareResources", service.prepare), ("NodeUnprepareResources", service.unprepare)):
            try:
                call([unknown()])
            except CallError as error:
                _require(sockets.code(error) not in _NO_ANSWER, f"{SERVICE} is offered, and {name} does not answer: {error}")


def _notify(info: sockets.Info) -> None:
    try:
        sockets.notify(info.socket)
    except grpc.RpcError as error:
        text = (
            f"NotifyRegistrationStatus failed ({sockets.reason(error)}); the kubelet removes a driver that does not accept its registration"
        )
        raise AssertionError(text) from error


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


ALL: Mapping[str, Callable[[sockets.Info], None]] = {
    "registration: GetInfo answers within a second": _in_time,
    "registration: the type is DRAPlugin": _type,
    "registration: the name is a valid driver name": _name,
    "registration: the endpoint is a socket": _endpoint,
    "registration: supported_versions names the DRA service": _versions,
    "registration: NotifyRegistrationStatus is accepted": _notify,
}
