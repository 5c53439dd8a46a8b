import urllib3
from kubernetes.client import configuration

class RESTClientObject:
    pool_manager: urllib3.PoolManager
    def __init__(self, configuration: configuration.Configuration) -> None: ...
