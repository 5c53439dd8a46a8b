"""Benchmarks: every figure beside a floor measured in the same run. Run all with ``make bench``, some with ``PYTHONPATH=tests python -m bench NAME``."""
