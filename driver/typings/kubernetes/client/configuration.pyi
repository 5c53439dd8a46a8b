from collections.abc import Callable, Sequence
from typing import Self, TypedDict

class _Setting(TypedDict):
    key: str
    value: str | None

class Configuration:
    host: str
    ssl_ca_cert: str | None
    ca_cert_data: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    assert_hostname: bool | str | None
    tls_server_name: str | None
    proxy: str | None
    api_key: dict[str, str]
    refresh_api_key_hook: Callable[[Self], None] | None
    connection_pool_maxsize: int
    socket_options: Sequence[tuple[int, int, int]] | None
    def __init__(self, host: str | None = ...) -> None: ...
    def auth_settings(self) -> dict[str, _Setting]: ...
