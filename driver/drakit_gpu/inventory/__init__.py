"""From hardware to the published inventory: discovery, attributes, and GPUs as devices with counters."""
