"""The kernel's network interfaces by netlink: sockets, links, namespaces, events, and bpf(2)."""
