"""cpu.example.com, a Kubernetes DRA driver."""
