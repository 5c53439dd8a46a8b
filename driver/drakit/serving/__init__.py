"""The driver's own servers: liveness, readiness, metrics and admission reviews. This package is no client of the kubelet or the API server."""
