"""What is free in a cluster: the allocator's verdict on every device, and what fits together on every board."""
