"""Traffic control of the kernel: raw rtnetlink, HTB, and eBPF classifiers assembled by hand. Used by ``devices.nic.netlink`` alone."""
