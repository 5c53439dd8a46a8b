"""What a write must pass beside validation: administrators' access, granular rights on claims, policies, webhooks."""
