"""IP addresses of pods: how they are written, which pools they come from, and which pod has which."""
