"""The NIC driver: interfaces shared by many claims, each share with its own bandwidth, or given whole to one claim.

``driver``          the verbs; where to start reading
``discovery``       which interfaces there are, which are offered and why others are not
``shaping``         the bandwidth of shares in the kernel: HTB classes and eBPF classifiers
``background``      the monitor of interfaces and the reconciler of their traffic control
``attach``          the interface of a share in a pod, made when the container runtime calls the hook
``addresses``       IP addresses of pods, from pools or from the configuration
``passthrough``     whole interfaces, moved into a pod and back
``netlink``         the sockets and requests that all of these share
``port``            what the driver needs of a machine, as a protocol; ``kernel_port`` is the Linux kernel's, ``mock_port`` a mock machine's
"""
