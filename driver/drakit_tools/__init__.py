"""Tools for cluster admins and driver authors: lint, allocate, plan, simulate, dashboard, new, the demo, and the conformance suite."""
