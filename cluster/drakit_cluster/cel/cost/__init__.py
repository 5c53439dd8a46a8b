"""What an expression costs: at worst, as Kubernetes estimates it, and at run time, as Kubernetes charges it."""
