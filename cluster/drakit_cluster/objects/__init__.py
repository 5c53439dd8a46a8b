"""API objects as values: kinds, fields, quantities, devices, shapes and rules. Pure: no threads, no network, no store."""
