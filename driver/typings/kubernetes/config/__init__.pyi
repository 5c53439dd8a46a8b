from typing import Any

from kubernetes.client import configuration

class ConfigException(Exception): ...  # noqa: N818 - its name in the library

def load_incluster_config(client_configuration: configuration.Configuration) -> None: ...
def __getattr__(name: str) -> Any: ...
