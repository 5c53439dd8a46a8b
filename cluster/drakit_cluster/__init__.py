"""The local cluster: API server, scheduler, controllers and kubelet for DRA in one process, so that drivers run where no Kubernetes is.

It runs drivers, so it shares no code with them: they meet only on the wire (HTTPS, gRPC over unix sockets, CDI files). What does not belong
here: anything a driver needs to run on a real cluster. It imports ``_proto``, ``telemetry`` and ``inputs`` of drakit, and nothing else of it.
"""
