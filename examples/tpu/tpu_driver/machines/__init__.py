"""The mock machines with TPUs."""
