"""The driver's own HTTP: whether it lives, whether it is ready, and its metrics. No kubelet and no API server is spoken to from here."""
