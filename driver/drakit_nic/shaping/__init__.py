"""The bandwidth of shares: HTB classes, eBPF classifiers and their maps on each shared NIC, and what keeps them right."""
