"""Admission of writes, besides validation: administrators' access, granular rights on claims, policies, webhooks."""
