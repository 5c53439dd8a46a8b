from collections.abc import Mapping
from typing import Any

from kubernetes.client import configuration

class KubeConfigMerger:
    config: Any
    def __init__(self, paths: str) -> None: ...
    def load_config(self, path: str) -> None: ...

class KubeConfigLoader:
    current_context: Mapping[str, Any]
    def __init__(
        self, config_dict: Any, active_context: str | None, *, config_base_path: str | None, temp_file_path: str | None
    ) -> None: ...
    def load_and_set(self, client_configuration: configuration.Configuration) -> None: ...
