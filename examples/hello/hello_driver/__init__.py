"""hello.example.com, a Kubernetes DRA driver."""
