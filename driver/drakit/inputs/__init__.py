"""Read untrusted input: files of a limited size, and YAML that cannot exhaust memory or stack."""
