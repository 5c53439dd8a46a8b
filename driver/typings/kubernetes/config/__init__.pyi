from typing import Any

from kubernetes.client import configuration

class ConfigException(Exception): ...  # noqa: N818 - its name in the library

def load_incluster_config(client_configuration: configuration.Configuration) -> None: ...
def load_kube_config(
    config_file: str,
    context: str | None,
    client_configuration: configuration.Configuration,
    persist_config: bool,
    temp_file_path: str | None,
) -> None: ...
def __getattr__(name: str) -> Any: ...
