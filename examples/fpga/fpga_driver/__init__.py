"""fpga.example.com, a Kubernetes DRA driver."""
