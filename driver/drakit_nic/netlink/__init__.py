"""The kernel's network interfaces by netlink: sockets, links, namespaces and events."""
