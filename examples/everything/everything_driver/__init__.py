"""everything.example.com, a Kubernetes DRA driver."""
