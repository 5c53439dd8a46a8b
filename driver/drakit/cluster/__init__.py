"""The local cluster: API server, scheduler, controllers and kubelet for DRA in one process, so that drivers run where no Kubernetes is.

It judges drivers, so it shares no code with them: they meet only on the wire (HTTPS, gRPC over unix sockets, CDI files). What does not belong
here: anything a driver needs to run on a real cluster. Imports ``_proto`` and ``telemetry``, and no other part of drakit.
"""
