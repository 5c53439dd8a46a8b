"""The NIC family: network interfaces shared by many claims, one share for each share id, accounted by bandwidth."""
