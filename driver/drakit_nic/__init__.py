"""The NIC driver: interfaces shared by many claims, each share with its own bandwidth, or given whole to one claim.

``driver``          the driver's methods, and where to start reading
``discovery``       the machine's interfaces, which of them are offered, and why others are not
``shaping``         the bandwidth of shares in the kernel: HTB classes and eBPF classifiers
``background``      the monitor of interfaces and the reconciler of their traffic control
``attach``          the interface of a share in a pod, created when the container runtime calls the hook
``addresses``       IP addresses of pods, from pools or from the configuration
``passthrough``     whole interfaces, moved into a pod and returned to the host
``netlink``         the sockets and requests that all of these share
``port``            the protocol by which the driver uses a machine; ``kernel_port`` is the Linux kernel's, ``mock_port`` a mock machine's

The entry point ``drakit.families`` names ``FAMILY`` of ``family``.
"""
