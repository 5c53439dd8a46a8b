"""The driver for NVIDIA GPUs: whole GPUs, MIG partitions created on demand, and GPUs shared by several claims.

- ``driver`` is the DRA driver; ``assembly`` builds it from the operator's ``settings``; ``config`` has the parameters of claims.
- ``port`` is the hardware interface in NVML's terms. ``nvml`` implements it on real GPUs, ``mock`` on simulated GPUs.
- ``inventory`` discovers GPUs and describes them as devices; ``identity`` names what a claim holds, across restarts of the driver.
- ``mig`` computes, creates and deletes MIG partitions. ``sharing`` sets time slices and compute modes, and runs MPS daemons.
- ``cdi`` has the edits of a container: device nodes, driver libraries, environment. ``host`` is the node's side: the kernel's files, device nodes,
  the installed driver.
- ``health`` watches the GPUs and taints those with a fault; ``metrics`` counts instances, shares and daemons.

The entry point ``drakit.families`` names ``FAMILY`` of ``family``.
"""
