"""Mock GPUs that outlive the driver: machines made of data, their state on disk, NVML's rules, injected faults, and a stand-in for MPS."""
